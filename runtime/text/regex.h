// SPDX-License-Identifier: Apache-2.0
// A compiled regular expression over UTF-8, for pre-tokenizers. Patterns are written for the
// Oniguruma library (Ruby syntax), which `tokenizers` uses; they are translated to PCRE2 (compiled
// with UTF, UCP and its JIT) where the two differ. Immutable and thread-safe after construction.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::runtime {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Regex {
 public:
  /// ConfigError with the position when `pattern` is wrong or uses what PCRE2 cannot express.
  explicit Regex(std::string_view pattern);

  /// Appends all matches in `text` (valid UTF-8), left to right, shifted by `shift` bytes; they may
  /// be empty. ConfigError when the pattern needs more backtracking than is allowed.
  void find_all(std::string_view text, std::size_t shift, std::vector<Span>& out) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;  ///< Copies share the compiled pattern.
};

/// The translation alone, for tests: Oniguruma's `pattern` as PCRE2 wants it.
std::string pcre2_pattern(std::string_view pattern);

}  // namespace tandem::runtime
