// SPDX-License-Identifier: Apache-2.0
// UTF-8 one character at a time, and the byte alphabet of byte-level BPE. Broken bytes are cut into
// "maximal subparts" (Unicode 15, section 3.9), as Rust, Python and browsers do when they replace
// them by U+FFFD. Plain functions on views, no state, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::runtime {

enum class Utf8State {
  kValid,
  kInvalid,
  kIncomplete,  ///< The text ends inside a character that is right so far.
};

struct Utf8Step {
  Utf8State state;
  std::uint32_t length;    ///< Bytes of the character, or of the broken part; at least 1.
  char32_t character = 0;  ///< Only when `state` is kValid.
};

/// Reads the character at `position`, which must be below `text.size()`.
Utf8Step utf8_step(std::string_view text, std::size_t position);

/// Offset of the first byte that is not part of a whole character; none for valid UTF-8.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

bool is_one_character(std::string_view text);

void append_utf8(std::string& out, char32_t character);

/// Moves all that is decided from `pending` to `out`, U+FFFD for broken parts. An incomplete
/// character at the end stays in `pending` unless `final`.
void move_lossy(std::string& pending, std::string& out, bool final);

/// The printable character which stands for `byte` in vocabularies of byte-level BPE (Radford et
/// al., "Language Models are Unsupervised Multitask Learners", 2019: `bytes_to_unicode`).
char32_t character_of_byte(std::uint8_t byte);

/// The inverse; none for a character outside that alphabet.
std::optional<std::uint8_t> byte_of_character(char32_t character);

/// Every byte of `text` as its character.
void append_byte_alphabet(std::string& out, std::string_view text);

/// The bytes that a byte-level token stands for; a token with a foreign character stands for
/// itself.
void append_bytes_of_token(std::string& out, std::string_view token);

}  // namespace tandem::runtime
