// SPDX-License-Identifier: Apache-2.0
// Template source to tokens, with jinja2's rules for white space: trim_blocks and lstrip_blocks are
// on, `-` and `+` at a tag override them, `raw` blocks and comments are resolved here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/source.h"

namespace tandem::runtime::jinja {

enum class TokenKind : std::uint8_t {
  kText,           ///< Literal output; `text` is what is printed.
  kBlockBegin,     ///< {%
  kBlockEnd,       ///< %}
  kVariableBegin,  ///< {{
  kVariableEnd,    ///< }}
  kName,
  kString,    ///< `text` without quotes, escapes resolved.
  kInteger,   ///< `integer`
  kFloat,     ///< `real`
  kOperator,  ///< `text` is the operator: "==", "[", "|", ...
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Offset offset = 0;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
};

/// `source` comes from `normalise_source`. The last token is kEnd. ConfigError with the place.
std::vector<Token> tokenize(std::string_view source);

/// Resolves Python's string escapes; `offset` is where `body` begins, for errors.
std::string unescape(std::string_view source, std::string_view body, Offset offset);

}  // namespace tandem::runtime::jinja
