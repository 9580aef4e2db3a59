// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/unicode.h"

#include <algorithm>

#include "runtime/text/jinja/unicode_tables.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

bool member(std::span<const char32_t> borders, char32_t code) {
  return (std::upper_bound(borders.begin(), borders.end(), code) - borders.begin()) % 2 == 1;
}

char32_t mapped(std::span<const CaseRun> runs, char32_t code) {
  // Runs are sorted by their first code; those of step 2 may interleave with one neighbour.
  auto after = std::upper_bound(runs.begin(), runs.end(), code,
                                [](char32_t c, const CaseRun& run) { return c < run.first; });
  for (int back = 0; back < 3 && after != runs.begin(); ++back) {
    const CaseRun& run = *--after;
    if (code <= run.last && (code - run.first) % run.step == 0)
      return code + static_cast<char32_t>(run.delta);
  }
  return code;
}

const char* exception(std::span<const CaseException> exceptions, char32_t code) {
  const auto found =
      std::lower_bound(exceptions.begin(), exceptions.end(), code,
                       [](const CaseException& entry, char32_t c) { return entry.code < c; });
  return found != exceptions.end() && found->code == code ? found->text : nullptr;
}

bool append_ascii_upper(std::string& out, char32_t code) {
  if (code >= 0x80) return false;
  out.push_back(static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code));
  return true;
}

void append_upper(std::string& out, char32_t code) {
  if (append_ascii_upper(out, code)) return;
  if (const char* text = exception(upper_exceptions(), code))
    out += text;
  else
    append_utf8(out, mapped(upper_runs(), code));
}

void append_title(std::string& out, char32_t code) {
  if (append_ascii_upper(out, code)) return;
  if (const char* text = exception(title_exceptions(), code))
    out += text;
  else
    append_utf8(out, mapped(upper_runs(), code));
}

// The Greek sigma has a form of its own at the end of a word.
bool ends_word(std::string_view text, std::size_t at, std::size_t size) {
  if (at == 0) return false;
  std::size_t before = at - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  if (!is_alpha(decode_at(text, before).value)) return false;
  return at + size >= text.size() || !is_alpha(decode_at(text, at + size).value);
}

void append_lower(std::string& out, std::string_view text, std::size_t at, CodePoint c) {
  if (c.value < 0x80)
    out.push_back(static_cast<char>(c.value >= 'A' && c.value <= 'Z' ? c.value + 32 : c.value));
  else if (c.value == 0x3A3)
    append_utf8(out, ends_word(text, at, c.size) ? 0x3C2 : 0x3C3);
  else if (const char* special = exception(lower_exceptions(), c.value))
    out += special;
  else
    append_utf8(out, mapped(lower_runs(), c.value));
}

template <typename Append>
std::string convert(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    append(out, i, c);
    i += c.size;
  }
  return out;
}

}  // namespace

bool is_printable(char32_t code) { return member(printable_borders(), code); }
bool is_alpha(char32_t code) { return member(alpha_borders(), code); }
bool is_decimal(char32_t code) { return member(decimal_borders(), code); }
bool is_digit(char32_t code) { return member(digit_borders(), code); }
bool is_numeric(char32_t code) { return member(numeric_borders(), code); }

bool is_upper(char32_t code) {
  return mapped(lower_runs(), code) != code || exception(lower_exceptions(), code);
}
bool is_lower(char32_t code) {
  return (mapped(upper_runs(), code) != code || exception(upper_exceptions(), code)) &&
         !is_upper(code);
}

std::string to_lower(std::string_view text) {
  return convert(
      text, [&](std::string& out, std::size_t at, CodePoint c) { append_lower(out, text, at, c); });
}

std::string to_upper(std::string_view text) {
  return convert(text,
                 [](std::string& out, std::size_t, CodePoint c) { append_upper(out, c.value); });
}

std::string case_fold(std::string_view text) {
  return convert(text, [](std::string& out, std::size_t, CodePoint c) {
    if (const char* special = exception(fold_exceptions(), c.value))
      out += special;
    else
      append_utf8(out, mapped(lower_runs(), c.value));
  });
}

std::string capitalize(std::string_view text) {
  return convert(text, [&](std::string& out, std::size_t at, CodePoint c) {
    if (at == 0)
      append_title(out, c.value);
    else
      append_lower(out, text, at, c);
  });
}

std::string title_case(std::string_view text) {
  bool in_word = false;
  return convert(text, [&](std::string& out, std::size_t at, CodePoint c) {
    if (in_word)
      append_lower(out, text, at, c);
    else
      append_title(out, c.value);
    in_word = is_upper(c.value) || is_lower(c.value);
  });
}

std::string swap_case(std::string_view text) {
  return convert(text, [&](std::string& out, std::size_t at, CodePoint c) {
    if (is_upper(c.value))
      append_lower(out, text, at, c);
    else
      append_upper(out, c.value);
  });
}

}  // namespace tandem::runtime::jinja
