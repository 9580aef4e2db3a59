// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/parser.h"
#include "runtime/text/jinja/parser_internal.h"

namespace tandem::runtime::jinja {

using enum ExpressionKind;

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (at_operator("|")) {
      node = parse_filter_chain(std::move(node), false);
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr node) {
  const Offset offset = current().offset;
  if (skip_operator(".")) {
    const Token& member = advance();
    if (member.kind == TokenKind::kName) {
      auto attribute = make(kAttribute, offset, std::move(node));
      attribute->name = member.text;
      return attribute;
    }
    if (member.kind != TokenKind::kInteger)
      fail(member.offset, "expected a name or a number after '.', found ", describe(member));
    auto index = make(kConstant, member.offset);
    index->constant = Value::integer(member.integer);
    return make(kItem, offset, std::move(node), std::move(index));
  }
  expect_operator("[");
  auto indices = make(kTuple, offset);
  while (!at_operator("]")) {
    if (!indices->children.empty()) expect_operator(",");
    add_child(*indices, parse_index());
  }
  expect_operator("]");
  if (indices->children.size() == 1) {
    auto index = std::move(indices->children[0]);
    return make(kItem, offset, std::move(node), std::move(index));
  }
  return make(kItem, offset, std::move(node), std::move(indices));
}

ExpressionPtr Parser::parse_index() {
  auto slice = make(kSlice, current().offset);
  if (at_operator(":")) {
    add_child(*slice, nullptr);
  } else {
    auto index = parse_expression();
    if (!at_operator(":")) return index;
    add_child(*slice, std::move(index));
  }
  const auto at_end = [&] { return at_operator("]") || at_operator(","); };
  expect_operator(":");
  add_child(*slice, at_end() || at_operator(":") ? nullptr : parse_expression());
  const bool has_step = skip_operator(":") && !at_end();
  add_child(*slice, has_step ? parse_expression() : nullptr);
  return slice;
}

void Parser::parse_arguments(Expression& call) {
  Arguments& arguments = call.arguments;
  expect_operator("(");
  const auto require = [&](bool good) {
    if (!good)
      fail(current().offset,
           "arguments are in the wrong order: positional ones come "
           "first, then named ones, *args and **kwargs");
  };
  while (!at_operator(")")) {
    if (skip_operator("*")) {
      require(!arguments.star && !arguments.star_star);
      arguments.star = parse_expression();
      grow(call, arguments.star);
    } else if (skip_operator("**")) {
      require(!arguments.star_star);
      arguments.star_star = parse_expression();
      grow(call, arguments.star_star);
    } else if (at(TokenKind::kName) && is_operator(look(), "=")) {
      require(!arguments.star_star);
      const std::string name = advance().text;
      advance();
      arguments.named.emplace_back(name, parse_expression());
      grow(call, arguments.named.back().second);
    } else {
      require(!arguments.star && !arguments.star_star && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
      grow(call, arguments.positional.back());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  auto node = make(kCall, current().offset, std::move(callee));
  parse_arguments(*node);
  return node;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_any_name();
  while (skip_operator(".")) name += "." + expect_any_name();
  return name;
}

ExpressionPtr Parser::parse_filter_chain(ExpressionPtr node, bool first_without_pipe) {
  while (first_without_pipe || skip_operator("|")) {
    first_without_pipe = false;
    auto filter = make(kFilter, current().offset);
    add_child(*filter, std::move(node));
    filter->name = parse_dotted_name();
    if (at_operator("(")) parse_arguments(*filter);
    node = std::move(filter);
  }
  return node;
}

ExpressionPtr Parser::parse_test(ExpressionPtr node) {
  const Offset offset = advance().offset;
  const bool negated = skip_name("not");
  auto test = make(kTest, offset, std::move(node));
  test->name = parse_dotted_name();
  const bool at_value = at(TokenKind::kString) || at(TokenKind::kInteger) ||
                        at(TokenKind::kFloat) || at_operator("[") || at_operator("{");
  const bool at_word =
      at(TokenKind::kName) && !at_name("else") && !at_name("or") && !at_name("and");
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if (at_value || at_word) {
    if (at_name("is")) fail(current().offset, "tests cannot be chained with 'is'; use 'and'");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
    grow(*test, test->arguments.positional.back());
  }
  return negated ? make(kNot, offset, std::move(test)) : std::move(test);
}

}  // namespace tandem::runtime::jinja
