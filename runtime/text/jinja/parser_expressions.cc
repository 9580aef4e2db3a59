// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "runtime/text/jinja/parser.h"
#include "runtime/text/jinja/parser_internal.h"

namespace tandem::runtime::jinja {

using enum ExpressionKind;

ExpressionPtr Parser::make(ExpressionKind kind, Offset offset) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->offset = offset;
  return node;
}

// Deep trees also come from long chains that need no recursion to parse: a + b + c + ...
void Parser::grow(Expression& parent, const ExpressionPtr& child) const {
  if (!child) return;
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxTreeDepth)
    fail(parent.offset, "this expression nests more than ", kMaxTreeDepth,
         " levels; split it with {% set %}");
}

void Parser::add_child(Expression& parent, ExpressionPtr child) const {
  grow(parent, child);
  parent.children.push_back(std::move(child));
}

ExpressionPtr Parser::make(ExpressionKind kind, Offset offset, ExpressionPtr first,
                           ExpressionPtr second) const {
  auto node = make(kind, offset);
  add_child(*node, std::move(first));
  if (second) add_child(*node, std::move(second));
  return node;
}

ExpressionPtr Parser::parse_expression(bool with_conditional) {
  const Nest nest(*this);
  auto value = parse_or();
  while (with_conditional && at_name("if")) {
    auto node = make(kConditional, advance().offset);
    add_child(*node, std::move(value));
    add_child(*node, parse_or());
    add_child(*node, skip_name("else") ? parse_expression() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  auto left = parse_and();
  while (at_name("or")) {
    const Offset offset = advance().offset;
    auto right = parse_and();
    left = make(kOr, offset, std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  auto left = parse_not();
  while (at_name("and")) {
    const Offset offset = advance().offset;
    auto right = parse_not();
    left = make(kAnd, offset, std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nest nest(*this);
  const Offset offset = advance().offset;
  return make(kNot, offset, parse_not());
}

ExpressionPtr Parser::parse_compare() {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kSymbols = {{
      {"==", Comparison::kEqual},
      {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater},
      {">=", Comparison::kGreaterEqual},
  }};
  const auto take = [&](Comparison& comparison) {
    for (const auto& [symbol, meaning] : kSymbols) {
      if (!skip_operator(symbol)) continue;
      comparison = meaning;
      return true;
    }
    const bool negated = at_name("not") && is_name(look(), "in");
    if (negated) advance();
    comparison = negated ? Comparison::kNotIn : Comparison::kIn;
    return skip_name("in");
  };
  auto first = parse_sum();
  Offset offset = current().offset;
  Comparison comparison{};
  if (!take(comparison)) return first;
  auto node = make(kCompare, offset, std::move(first));
  do {
    node->comparisons.push_back(comparison);
    add_child(*node, parse_sum());
  } while (take(comparison));
  return node;
}

ExpressionPtr Parser::parse_sum() {
  auto left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const Operator op = at_operator("+") ? Operator::kAdd : Operator::kSubtract;
    const Offset offset = advance().offset;
    auto right = parse_concat();
    left = make(kBinary, offset, std::move(left), std::move(right));
    left->op = op;
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  auto first = parse_product();
  if (!at_operator("~")) return first;
  auto node = make(kConcat, current().offset, std::move(first));
  while (skip_operator("~")) add_child(*node, parse_product());
  return node;
}

ExpressionPtr Parser::parse_product() {
  constexpr std::array<std::pair<std::string_view, Operator>, 4> kSymbols = {{
      {"*", Operator::kMultiply},
      {"/", Operator::kDivide},
      {"//", Operator::kFloorDivide},
      {"%", Operator::kModulo},
  }};
  auto left = parse_power();
  while (true) {
    const auto* symbol = std::find_if(kSymbols.begin(), kSymbols.end(),
                                      [&](const auto& entry) { return at_operator(entry.first); });
    if (symbol == kSymbols.end()) return left;
    const Offset offset = advance().offset;
    auto right = parse_power();
    left = make(kBinary, offset, std::move(left), std::move(right));
    left->op = symbol->second;
  }
}

ExpressionPtr Parser::parse_power() {
  auto left = parse_unary();
  while (at_operator("**")) {
    const Offset offset = advance().offset;
    auto right = parse_unary();
    left = make(kBinary, offset, std::move(left), std::move(right));
    left->op = Operator::kPower;
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
  ExpressionPtr node;
  if (at_operator("-") || at_operator("+")) {
    const Nest nest(*this);
    const Operator op = at_operator("-") ? Operator::kSubtract : Operator::kAdd;
    const Offset offset = advance().offset;
    node = make(kUnary, offset, parse_unary(false));
    node->op = op;
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::parse_name() {
  const Token& token = advance();
  auto node = make(kConstant, token.offset);
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::boolean(name == "true" || name == "True");
  } else if (name != "none" && name != "None") {
    node->kind = kName;
    node->name = name;
    for (Parameters* function : functions_) {
      function->uses_caller |= name == "caller";
      function->uses_varargs |= name == "varargs";
      function->uses_kwargs |= name == "kwargs";
    }
  }
  return node;
}

ExpressionPtr Parser::parse_primary() {
  const Offset offset = current().offset;
  if (at(TokenKind::kName)) return parse_name();
  if (at(TokenKind::kString)) {
    std::string text;
    while (at(TokenKind::kString)) text += advance().text;
    auto node = make(kConstant, offset);
    node->constant = Value::string(std::move(text));
    return node;
  }
  if (at(TokenKind::kInteger) || at(TokenKind::kFloat)) {
    auto node = make(kConstant, offset);
    const Token& token = advance();
    node->constant =
        token.kind == TokenKind::kInteger ? Value::integer(token.integer) : Value::real(token.real);
    return node;
  }
  if (skip_operator("(")) {
    auto node = parse_tuple(true, {}, true);
    expect_operator(")");
    return node;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail(offset, "expected an expression, found ", describe(current()));
}

// One expression, or several with commas: a tuple.
ExpressionPtr Parser::parse_tuple(bool with_conditional, const Names& end_names, bool parentheses) {
  const auto at_end = [&] {
    return at(TokenKind::kVariableEnd) || at(TokenKind::kBlockEnd) || at_operator(")") ||
           std::any_of(end_names.begin(), end_names.end(),
                       [&](std::string_view name) { return at_name(name); });
  };
  auto node = make(kTuple, current().offset);
  bool is_tuple = false;
  while (!at_end()) {
    add_child(*node, parse_expression(with_conditional));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return node;
  if (!node->children.empty()) return std::move(node->children[0]);
  if (!parentheses) fail(node->offset, "expected an expression, found ", describe(current()));
  return node;
}

ExpressionPtr Parser::parse_list() {
  auto node = make(kList, advance().offset);
  while (!at_operator("]")) {
    add_child(*node, parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return node;
}

ExpressionPtr Parser::parse_dict() {
  auto node = make(kDict, advance().offset);
  while (!at_operator("}")) {
    add_child(*node, parse_expression());
    expect_operator(":");
    add_child(*node, parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return node;
}

}  // namespace tandem::runtime::jinja
