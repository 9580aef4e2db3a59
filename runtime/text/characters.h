// SPDX-License-Identifier: Apache-2.0
// Questions about Unicode characters at the borders of a text (valid UTF-8). Plain functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::runtime {

bool is_white_space(char32_t character);  ///< Unicode's White_Space.
/// Alphabetic, mark, decimal digit, connector or join control, as \w of Rust's regex.
bool is_word_character(char32_t character);

bool starts_with_word_character(std::string_view text);
bool ends_with_word_character(std::string_view text);
std::size_t white_space_at_start(std::string_view text);  ///< In bytes.
std::size_t white_space_at_end(std::string_view text);    ///< In bytes.

}  // namespace tandem::runtime
