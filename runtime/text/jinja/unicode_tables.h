// SPDX-License-Identifier: Apache-2.0
// The generated tables behind unicode.h. A class is the ascending list of code points where
// membership changes; case mappings are runs plus the characters that do not fit one.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::runtime::jinja {

struct CaseRun {
  char32_t first, last;  ///< Inclusive
  std::uint32_t step;
  std::int32_t delta;  ///< Mapped = code + delta
};
struct CaseException {
  char32_t code;
  const char* text;  ///< UTF-8
};

std::span<const char32_t> printable_borders();
std::span<const char32_t> alpha_borders();
std::span<const char32_t> decimal_borders();
std::span<const char32_t> digit_borders();
std::span<const char32_t> numeric_borders();
std::span<const CaseRun> lower_runs();
std::span<const CaseRun> upper_runs();
std::span<const CaseException> lower_exceptions();
std::span<const CaseException> upper_exceptions();
std::span<const CaseException> title_exceptions();  ///< Where title case is not upper case.
std::span<const CaseException> fold_exceptions();   ///< Where case folding is not lower case.

}  // namespace tandem::runtime::jinja
