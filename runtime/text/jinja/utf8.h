// SPDX-License-Identifier: Apache-2.0
// Strings as Python sees them: sequences of code points over UTF-8 bytes. A byte that is not valid
// UTF-8 counts as one character of its own and is passed through unchanged. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::runtime::jinja {

struct CodePoint {
  char32_t value = 0;    ///< U+DC00 + byte for a byte that is not valid UTF-8.
  std::size_t size = 0;  ///< Bytes it takes.
};

/// The character at byte `offset` (< text.size()).
CodePoint decode_at(std::string_view text, std::size_t offset);
void append_utf8(std::string& out, char32_t code);

std::size_t count_characters(std::string_view text);
/// The characters of `text`, each as its bytes.
std::vector<std::string_view> split_characters(std::string_view text);
/// Byte offset of character `index`; text.size() when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);

/// Python's str.isspace for one character.
bool is_space(char32_t code);
/// Without white space (Python's strip()) at the chosen ends.
std::string_view strip_space(std::string_view text, bool left, bool right);

}  // namespace tandem::runtime::jinja
