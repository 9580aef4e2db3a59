// SPDX-License-Identifier: Apache-2.0
// The parser's class, shared by the files that hold its expression and its statement half.
// One Parser parses one template; it lives only inside `parse`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/device/error.h"
#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/lexer.h"

namespace tandem::runtime::jinja {

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source), tokens_(tokenize(source)) {}
  Block parse_template();

 private:
  using Names = std::vector<std::string_view>;

  // Tokens.
  const Token& current() const { return tokens_[index_]; }
  const Token& look() const { return tokens_[std::min(index_ + 1, tokens_.size() - 1)]; }
  const Token& advance();
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view op) const { return is_operator(current(), op); }
  bool at_name(std::string_view name) const { return is_name(current(), name); }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  void expect(TokenKind kind, std::string_view what);
  static bool is_operator(const Token& token, std::string_view op) {
    return token.kind == TokenKind::kOperator && token.text == op;
  }
  static bool is_name(const Token& token, std::string_view name) {
    return token.kind == TokenKind::kName && token.text == name;
  }
  static std::string describe(const Token& token);
  template <typename... Parts>
  [[noreturn]] void fail(Offset offset, const Parts&... parts) const {
    fail_at(source_, offset, concat(parts...));
  }

  // Expressions.
  ExpressionPtr make(ExpressionKind kind, Offset offset) const;
  ExpressionPtr make(ExpressionKind kind, Offset offset, ExpressionPtr first,
                     ExpressionPtr second = nullptr) const;
  void grow(Expression& parent, const ExpressionPtr& child) const;
  void add_child(Expression& parent, ExpressionPtr child) const;
  ExpressionPtr parse_expression(bool with_conditional = true);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_tuple(bool with_conditional, const Names& end_names, bool parentheses);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_index();
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter_chain(ExpressionPtr node, bool first_without_pipe);
  ExpressionPtr parse_test(ExpressionPtr node);
  void parse_arguments(Expression& call);
  std::string parse_dotted_name();

  // Statements.
  Block parse_block(const Names& end_names);
  Block parse_body(const Names& end_names);
  Statement parse_statement();
  Statement parse_for(Statement statement);
  Statement parse_if(Statement statement);
  Statement parse_set(Statement statement);
  Statement parse_macro(Statement statement);
  Statement parse_call_block(Statement statement);
  Statement parse_filter_block(Statement statement);
  Statement parse_with(Statement statement);
  Statement parse_print(Statement statement);
  Statement parse_scope(Statement statement, std::string_view tag);
  Statement parse_loop_control(Statement statement, std::string_view tag);
  Block parse_function_body(Parameters& parameters, std::string_view end_name);
  void parse_parameters(Parameters& parameters);
  Target parse_target(const Names& end_names, bool with_namespace);
  Target parse_single_target(bool with_namespace);

  /// Counts nesting for the life of one recursive call.
  class Nest;

  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t index_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                       // enclosing loops of this function body
  std::vector<Parameters*> functions_;  // enclosing macros and call blocks
};

class Parser::Nest {
 public:
  explicit Nest(Parser& parser);
  ~Nest() { --parser_.nesting_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  Parser& parser_;
};

}  // namespace tandem::runtime::jinja
