// SPDX-License-Identifier: Apache-2.0
// Character classes and case mappings as Python's str has them, for all of Unicode.
// Pure functions over generated tables.
#pragma once

#include <string>
#include <string_view>

namespace tandem::runtime::jinja {

bool is_printable(char32_t code);
bool is_alpha(char32_t code);
bool is_decimal(char32_t code);
bool is_digit(char32_t code);
bool is_numeric(char32_t code);
inline bool is_alphanumeric(char32_t code) { return is_alpha(code) || is_numeric(code); }
/// Has a lower-case form of its own (upper), or an upper-case one (lower).
bool is_upper(char32_t code);
bool is_lower(char32_t code);

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string case_fold(std::string_view text);
/// The first character in title case, the rest in lower case.
std::string capitalize(std::string_view text);
/// Every run of letters capitalised.
std::string title_case(std::string_view text);
std::string swap_case(std::string_view text);

}  // namespace tandem::runtime::jinja
