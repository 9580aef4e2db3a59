// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/parser.h"

#include "runtime/text/jinja/parser_internal.h"

namespace tandem::runtime::jinja {

Block parse(std::string_view source) { return Parser(source).parse_template(); }

Parser::Nest::Nest(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ <= kMaxTreeDepth) return;
  --parser_.nesting_;
  parser_.fail(parser_.current().offset, "the template nests more than ", kMaxTreeDepth,
               " levels here");
}

const Token& Parser::advance() {
  const Token& token = tokens_[index_];
  if (index_ + 1 < tokens_.size()) ++index_;
  return token;
}

bool Parser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op))
    fail(current().offset, "expected '", op, "', found ", describe(current()));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name))
    fail(current().offset, "expected '", name, "', found ", describe(current()));
}

std::string Parser::expect_any_name() {
  if (!at(TokenKind::kName)) fail(current().offset, "expected a name, found ", describe(current()));
  return advance().text;
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail(current().offset, "expected ", what, ", found ", describe(current()));
  advance();
}

std::string Parser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      return "'" + token.text + "'";
  }
  return "something else";
}

}  // namespace tandem::runtime::jinja
