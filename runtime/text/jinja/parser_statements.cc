// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/text/jinja/parser.h"
#include "runtime/text/jinja/parser_internal.h"

namespace tandem::runtime::jinja {

Block Parser::parse_template() {
  Block block = parse_block({});
  if (!at(TokenKind::kEnd)) fail(current().offset, "unexpected ", describe(current()));
  return block;
}

// Statements up to a tag named in `end_names` (its `{%` is consumed, the name is not) or the end.
Block Parser::parse_block(const Names& end_names) {
  const Nest nest(*this);
  Block block;
  while (!at(TokenKind::kEnd)) {
    Statement statement;
    const Token& token = advance();
    statement.offset = token.offset;
    if (token.kind == TokenKind::kText) {
      statement.text = token.text;
    } else if (token.kind == TokenKind::kVariableBegin) {
      statement.kind = StatementKind::kPrint;
      statement.expressions.push_back(parse_tuple(true, {}, false));
      expect(TokenKind::kVariableEnd, "'}}'");
    } else {
      if (std::any_of(end_names.begin(), end_names.end(),
                      [&](std::string_view name) { return at_name(name); }))
        return block;
      statement = parse_statement();
      expect(TokenKind::kBlockEnd, "'%}'");
    }
    block.push_back(std::move(statement));
  }
  if (!end_names.empty())
    fail(current().offset, "the template ends where '", end_names.back(), "' is still expected");
  return block;
}

Block Parser::parse_body(const Names& end_names) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  return parse_block(end_names);
}

Statement Parser::parse_statement() {
  Statement statement;
  statement.offset = current().offset;
  const std::string tag = expect_any_name();
  if (tag == "for") return parse_for(std::move(statement));
  if (tag == "if") return parse_if(std::move(statement));
  if (tag == "set") return parse_set(std::move(statement));
  if (tag == "macro") return parse_macro(std::move(statement));
  if (tag == "call") return parse_call_block(std::move(statement));
  if (tag == "filter") return parse_filter_block(std::move(statement));
  if (tag == "with") return parse_with(std::move(statement));
  if (tag == "print") return parse_print(std::move(statement));
  if (tag == "generation" || tag == "autoescape" || tag == "block")
    return parse_scope(std::move(statement), tag);
  if (tag == "break" || tag == "continue") return parse_loop_control(std::move(statement), tag);
  if (tag == "extends" || tag == "include" || tag == "import" || tag == "from")
    fail(statement.offset, "'", tag, "' is refused: a chat template stands alone");
  if (tag.starts_with("end") || tag == "else" || tag == "elif")
    fail(statement.offset, "'", tag, "' has no open block to belong to");
  fail(statement.offset, "unknown tag '", tag, "'");
}

Statement Parser::parse_for(Statement statement) {
  statement.kind = StatementKind::kFor;
  statement.targets.push_back(parse_target({"in"}, false));
  expect_name("in");
  statement.expressions.push_back(parse_tuple(false, {"recursive"}, false));
  statement.expressions.push_back(skip_name("if") ? parse_expression() : nullptr);
  statement.recursive = skip_name("recursive");
  ++loops_;
  statement.bodies.push_back(parse_body({"else", "endfor"}));
  --loops_;
  if (skip_name("else")) statement.bodies.push_back(parse_body({"endfor"}));
  expect_name("endfor");
  return statement;
}

Statement Parser::parse_if(Statement statement) {
  statement.kind = StatementKind::kIf;
  do {
    statement.expressions.push_back(parse_tuple(false, {}, false));
    statement.bodies.push_back(parse_body({"elif", "else", "endif"}));
  } while (skip_name("elif"));
  if (skip_name("else")) statement.bodies.push_back(parse_body({"endif"}));
  expect_name("endif");
  return statement;
}

Statement Parser::parse_set(Statement statement) {
  statement.targets.push_back(parse_target({}, true));
  if (skip_operator("=")) {
    statement.kind = StatementKind::kSet;
    statement.expressions.push_back(parse_tuple(true, {}, false));
    return statement;
  }
  statement.kind = StatementKind::kSetBlock;
  statement.expressions.push_back(parse_filter_chain(nullptr, false));
  statement.bodies.push_back(parse_body({"endset"}));
  expect_name("endset");
  return statement;
}

void Parser::parse_parameters(Parameters& parameters) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!parameters.names.empty()) expect_operator(",");
    const Offset offset = current().offset;
    parameters.names.push_back(expect_any_name());
    const bool has_default = skip_operator("=");
    if (!has_default && parameters.names.back() == "caller")
      fail(offset, "a parameter named 'caller' needs a default");
    if (!has_default && !parameters.defaults.empty() && parameters.defaults.back())
      fail(offset, "a parameter without a default follows one that has a default");
    parameters.defaults.push_back(has_default ? parse_expression() : nullptr);
  }
  expect_operator(")");
}

// A macro's or caller's body: loops outside of it cannot be left from inside.
Block Parser::parse_function_body(Parameters& parameters, std::string_view end_name) {
  functions_.push_back(&parameters);
  const int outer_loops = std::exchange(loops_, 0);
  Block body = parse_body({end_name});
  loops_ = outer_loops;
  functions_.pop_back();
  expect_name(end_name);
  return body;
}

Statement Parser::parse_macro(Statement statement) {
  statement.kind = StatementKind::kMacro;
  statement.text = expect_any_name();
  parse_parameters(statement.parameters);
  statement.bodies.push_back(parse_function_body(statement.parameters, "endmacro"));
  return statement;
}

Statement Parser::parse_call_block(Statement statement) {
  statement.kind = StatementKind::kCallBlock;
  if (at_operator("(")) parse_parameters(statement.parameters);
  const Offset offset = current().offset;
  statement.expressions.push_back(parse_expression());
  if (statement.expressions[0]->kind != ExpressionKind::kCall)
    fail(offset, "a call block needs a call, such as {% call name() %}");
  statement.bodies.push_back(parse_function_body(statement.parameters, "endcall"));
  return statement;
}

Statement Parser::parse_filter_block(Statement statement) {
  statement.kind = StatementKind::kFilterBlock;
  statement.expressions.push_back(parse_filter_chain(nullptr, true));
  statement.bodies.push_back(parse_body({"endfilter"}));
  expect_name("endfilter");
  return statement;
}

Statement Parser::parse_with(Statement statement) {
  statement.kind = StatementKind::kWith;
  while (!at(TokenKind::kBlockEnd)) {
    if (!statement.targets.empty()) expect_operator(",");
    statement.targets.push_back(parse_target({}, false));
    expect_operator("=");
    statement.expressions.push_back(parse_expression());
  }
  statement.bodies.push_back(parse_body({"endwith"}));
  expect_name("endwith");
  return statement;
}

Statement Parser::parse_print(Statement statement) {
  statement.kind = StatementKind::kPrint;
  while (!at(TokenKind::kBlockEnd)) {
    if (!statement.expressions.empty()) expect_operator(",");
    statement.expressions.push_back(parse_expression());
  }
  return statement;
}

// Tags that only give their body a scope. `generation` marks the assistant's text for training;
// nothing is printed for it, and as a function of its own it cannot be left with `break`.
Statement Parser::parse_scope(Statement statement, std::string_view tag) {
  statement.kind = StatementKind::kScope;
  if (tag == "generation") {
    statement.bodies.push_back(parse_function_body(statement.parameters, "endgeneration"));
    return statement;
  }
  if (tag == "autoescape") {
    const ExpressionPtr flag = parse_expression();
    const bool off = flag->kind == ExpressionKind::kConstant && flag->constant.is(Kind::kBool) &&
                     flag->constant.as_int() == 0;
    if (!off) fail(flag->offset, "only {% autoescape false %} is supported");
    statement.bodies.push_back(parse_body({"endautoescape"}));
    expect_name("endautoescape");
    return statement;
  }
  const std::string name = expect_any_name();
  skip_name("scoped");
  statement.bodies.push_back(parse_function_body(statement.parameters, "endblock"));
  skip_name(name);
  return statement;
}

Statement Parser::parse_loop_control(Statement statement, std::string_view tag) {
  statement.kind = tag == "break" ? StatementKind::kBreak : StatementKind::kContinue;
  if (loops_ == 0) fail(statement.offset, "'", tag, "' is outside of a loop");
  return statement;
}

Target Parser::parse_target(const Names& end_names, bool with_namespace) {
  Target first = parse_single_target(with_namespace);
  if (!at_operator(",")) return first;
  Target tuple;
  tuple.offset = first.offset;
  tuple.is_tuple = true;
  tuple.items.push_back(std::move(first));
  while (skip_operator(",")) {
    const bool at_end = at(TokenKind::kBlockEnd) || at_operator("=") || at_operator(")") ||
                        std::any_of(end_names.begin(), end_names.end(),
                                    [&](std::string_view name) { return at_name(name); });
    if (at_end) break;
    tuple.items.push_back(parse_single_target(with_namespace));
  }
  return tuple;
}

Target Parser::parse_single_target(bool with_namespace) {
  const Nest nest(*this);
  Target target;
  target.offset = current().offset;
  if (skip_operator("(")) {
    target = parse_target({}, with_namespace);
    expect_operator(")");
    return target;
  }
  target.name = expect_any_name();
  if (!with_namespace && target.name == "loop")
    fail(target.offset, "cannot assign to the loop's own variable 'loop'");
  constexpr std::string_view kReserved[] = {"true", "True", "false", "False", "none", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), target.name) != std::end(kReserved))
    fail(target.offset, "cannot assign to '", target.name, "'");
  if (with_namespace && skip_operator(".")) target.attribute = expect_any_name();
  return target;
}

}  // namespace tandem::runtime::jinja
