// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/characters.h"

#include <utf8proc.h>

#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

/// Start of the last character of `text`, which is not empty.
std::size_t last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return begin;
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // Join controls, and circled letters, which are symbols but alphabetic.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

bool starts_with_word_character(std::string_view text) {
  return !text.empty() && is_word_character(utf8_step(text, 0).character);
}

bool ends_with_word_character(std::string_view text) {
  return !text.empty() && is_word_character(utf8_step(text, last_character(text)).character);
}

std::size_t white_space_at_start(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const Utf8Step step = utf8_step(text, end);
    if (!is_white_space(step.character)) break;
    end += step.length;
  }
  return end;
}

std::size_t white_space_at_end(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t last = last_character(text.substr(0, begin));
    if (!is_white_space(utf8_step(text, last).character)) break;
    begin = last;
  }
  return text.size() - begin;
}

}  // namespace tandem::runtime
