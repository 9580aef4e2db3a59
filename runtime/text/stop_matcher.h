// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in streamed text and holds back what may still become one. Of several, the
// one that ends first counts (of those the longest), so the result does not depend on how the text
// is cut into pieces. Works on bytes: pieces may end inside a character. One text, one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::runtime {

class StopMatcher {
 public:
  /// `include_stop_str`: the stop string itself is emitted too. ConfigError for an empty one.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop_str = false);

  /// The text that can be emitted now. Once a stop string is complete, what comes behind it is
  /// dropped, and every later call returns nothing.
  std::string push(std::string_view piece);
  /// The text that was held back, when generation ends without a stop string.
  std::string finish();

  bool stopped() const { return matched_.has_value(); }
  /// Index of the stop string that was found.
  std::optional<std::size_t> matched() const { return matched_; }

 private:
  /// One stop string and how much of it the text ends with (Knuth, Morris and Pratt, "Fast Pattern
  /// Matching in Strings", 1977).
  struct Pattern {
    std::string text;
    std::vector<std::size_t> borders;  ///< Longest proper border of each prefix, by its length.
    std::size_t matched = 0;
    void advance(char byte);
  };
  void advance_all(char byte);

  std::vector<Pattern> patterns_;
  bool include_stop_str_;
  std::string held_;  ///< Text not emitted yet.
  std::optional<std::size_t> matched_;
};

}  // namespace tandem::runtime
