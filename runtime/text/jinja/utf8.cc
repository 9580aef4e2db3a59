// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

CodePoint decode_at(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const CodePoint broken{char32_t{0xDC00} + first, 1};
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || offset + size > text.size()) return broken;
  char32_t code = first & (0xFFu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (!is_continuation(byte(i))) return broken;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return broken;
  return {code, size};
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code >= 0xDC80 && code <= 0xDCFF) {
    put(code - 0xDC00);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += decode_at(text, i).size) ++count;
  return count;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = decode_at(text, i).size;
    out.push_back(text.substr(i, size));
    i += size;
  }
  return out;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  while (index-- > 0 && offset < text.size()) offset += decode_at(text, offset).size;
  return offset;
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const CodePoint c = decode_at(text, begin);
    if (!is_space(c.value)) break;
    begin += c.size;
  }
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && is_continuation(static_cast<unsigned char>(text[last]))) --last;
    const CodePoint c = decode_at(text, last);
    if (last + c.size != end || !is_space(c.value)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

}  // namespace tandem::runtime::jinja
