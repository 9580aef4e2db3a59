// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/error.h"
#include "runtime/text/jinja/lexer.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

/// Reads up to `most` digits of `base` at `i`; returns how many there were.
int read_digits(std::string_view body, std::size_t i, int most, int base, char32_t& code) {
  int count = 0;
  code = 0;
  while (count < most && i < body.size() && digit_value(body[i]) < base) {
    code = code * static_cast<char32_t>(base) + static_cast<char32_t>(digit_value(body[i]));
    ++i;
    ++count;
  }
  return count;
}

char simple_escape(char c) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kBytes = "\\'\"\a\b\f\n\r\t\v";
  const std::size_t found = kLetters.find(c);
  return found == std::string_view::npos ? '\0' : kBytes[found];
}

}  // namespace

std::string unescape(std::string_view source, std::string_view body, Offset offset) {
  std::string out;
  out.reserve(body.size());
  for (std::size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out.push_back(body[i++]);
      continue;
    }
    const char letter = body[i + 1];
    const Offset place = offset + static_cast<Offset>(i);
    char32_t code = 0;
    if (letter == '\n') {  // a line that goes on
      i += 2;
    } else if (const char simple = simple_escape(letter)) {
      out.push_back(simple);
      i += 2;
    } else if (const int count = read_digits(body, i + 1, 3, 8, code)) {
      append_utf8(out, code);
      i += 1 + static_cast<std::size_t>(count);
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const int wanted = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      if (read_digits(body, i + 2, wanted, 16, code) != wanted)
        fail_at(source, place, concat("\\", letter, " needs ", wanted, " hexadecimal digits"));
      if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        fail_at(source, place, "this escape does not name a character; write the character itself");
      append_utf8(out, code);
      i += 2 + static_cast<std::size_t>(wanted);
    } else if (letter == 'N') {
      fail_at(source, place, "\\N{...} escapes are not supported; write the character itself");
    } else {  // Python keeps unknown escapes as they are
      out.push_back('\\');
      ++i;
    }
  }
  return out;
}

}  // namespace tandem::runtime::jinja
