// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/utf8.h"

#include <array>
#include <cstring>

namespace tandem::runtime {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct ByteAlphabet {
  std::array<char32_t, 256> characters{};
  std::array<std::int16_t, 512> bytes{};
  std::array<std::array<char, 2>, 256> encoded{};  ///< Every character needs one or two bytes.
  std::array<std::uint8_t, 256> lengths{};
};

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr ByteAlphabet make_alphabet() {
  ByteAlphabet alphabet;
  for (auto& byte : alphabet.bytes) byte = -1;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.characters[byte] = character;
    alphabet.bytes[character] = static_cast<std::int16_t>(byte);
    if (character < 0x80) {
      alphabet.encoded[byte] = {static_cast<char>(character), 0};
      alphabet.lengths[byte] = 1;
    } else {
      alphabet.encoded[byte] = {static_cast<char>(0xC0 | (character >> 6)),
                                static_cast<char>(0x80 | (character & 0x3F))};
      alphabet.lengths[byte] = 2;
    }
  }
  return alphabet;
}

constexpr ByteAlphabet kAlphabet = make_alphabet();

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t position) {
  const auto lead = static_cast<std::uint8_t>(text[position]);
  if (lead < 0x80) return {Utf8State::kValid, 1, lead};
  std::uint32_t length = 0;
  std::uint8_t low = 0x80, high = 0xBF;  // Allowed range of the next byte.
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;   // No overlong forms.
    if (lead == 0xED) high = 0x9F;  // No surrogates.
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // Nothing above U+10FFFF.
  } else {
    return {Utf8State::kInvalid, 1};
  }
  char32_t character = lead & (0x7F >> length);
  for (std::uint32_t i = 1; i < length; ++i) {
    if (position + i >= text.size()) return {Utf8State::kIncomplete, i};
    const auto byte = static_cast<std::uint8_t>(text[position + i]);
    if (byte < low || byte > high) return {Utf8State::kInvalid, i};
    character = (character << 6) | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8State::kValid, length, character};
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    if (position + 8 <= text.size()) {  // Eight ASCII bytes at once.
      std::uint64_t word;
      std::memcpy(&word, text.data() + position, 8);
      if ((word & 0x8080808080808080u) == 0) {
        position += 8;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text, position);
    if (step.state != Utf8State::kValid) return position;
    position += step.length;
  }
  return std::nullopt;
}

bool is_one_character(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Step step = utf8_step(text, 0);
  return step.state == Utf8State::kValid && step.length == text.size();
}

void append_utf8(std::string& out, char32_t character) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    push(character);
  } else if (character < 0x800) {
    push(0xC0 | (character >> 6));
    push(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    push(0xE0 | (character >> 12));
    push(0x80 | ((character >> 6) & 0x3F));
    push(0x80 | (character & 0x3F));
  } else {
    push(0xF0 | (character >> 18));
    push(0x80 | ((character >> 12) & 0x3F));
    push(0x80 | ((character >> 6) & 0x3F));
    push(0x80 | (character & 0x3F));
  }
}

void move_lossy(std::string& pending, std::string& out, bool final) {
  std::size_t position = 0;
  while (position < pending.size()) {
    const Utf8Step step = utf8_step(pending, position);
    if (step.state == Utf8State::kIncomplete && !final) break;
    if (step.state == Utf8State::kValid) {
      out.append(pending, position, step.length);
    } else {
      out.append(kReplacement);
    }
    position += step.length;
  }
  pending.erase(0, position);
}

char32_t character_of_byte(std::uint8_t byte) { return kAlphabet.characters[byte]; }

std::optional<std::uint8_t> byte_of_character(char32_t character) {
  if (character >= kAlphabet.bytes.size() || kAlphabet.bytes[character] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(kAlphabet.bytes[character]);
}

void append_byte_alphabet(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    out.append(kAlphabet.encoded[byte].data(), kAlphabet.lengths[byte]);
  }
}

void append_bytes_of_token(std::string& out, std::string_view token) {
  const std::size_t before = out.size();
  for (std::size_t position = 0; position < token.size();) {
    const Utf8Step step = utf8_step(token, position);
    const auto byte =
        step.state == Utf8State::kValid ? byte_of_character(step.character) : std::nullopt;
    if (!byte) {
      out.resize(before);
      out.append(token);
      return;
    }
    out.push_back(static_cast<char>(*byte));
    position += step.length;
  }
}

}  // namespace tandem::runtime
