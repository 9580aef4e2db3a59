// SPDX-License-Identifier: Apache-2.0
// Replaces every match of a pattern by a text: the `Replace` of normalizers and decoders, and the
// pattern notation ({"String": ...} or {"Regex": ...}) that pre-tokenizers share. Immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/json_node.h"
#include "runtime/text/regex.h"

namespace tandem::runtime {

class Replacer {
 public:
  Replacer(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}
  /// Reads `pattern` and `content`.
  static Replacer from_json(const JsonNode& node);

  std::string apply(std::string_view text) const;

 private:
  Replacer(std::optional<Regex> regex, std::string literal, std::string content)
      : regex_(std::move(regex)), literal_(std::move(literal)), content_(std::move(content)) {}

  std::optional<Regex> regex_;
  std::string literal_;  ///< Used when there is no regex; an empty one matches nothing.
  std::string content_;
};

/// A regular expression for the pattern in `node`.
Regex pattern_from_json(const JsonNode& node);

/// `text` as a regular expression that matches just it.
std::string literal_pattern(std::string_view text);

}  // namespace tandem::runtime
