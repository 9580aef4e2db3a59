// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}";

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

/// The escape after a backslash at `position` of `pattern`; returns the position behind it.
std::size_t translate_escape(std::string_view pattern, std::size_t position, bool in_class,
                             std::string& out) {
  const char c = pattern[position];
  switch (c) {
    case 's':
      out += "\\p{White_Space}";  // PCRE2's own \s also takes U+180E.
      return position + 1;
    case 'S':
      out += "\\P{White_Space}";
      return position + 1;
    case 'w':
      out += in_class ? std::string(kWordClass) : concat("[", kWordClass, "]");
      return position + 1;
    case 'W':
      TANDEM_REQUIRE(!in_class, "the pattern '", pattern,
                     "' of the tokenizer uses \\W inside a class, which is not supported; "
                     "write the class out");
      out += concat("[^", kWordClass, "]");
      return position + 1;
    case 'h':
    case 'H':
    case 'X':
      TANDEM_REQUIRE(false, "the pattern '", pattern, "' of the tokenizer uses \\", c,
                     ", which is not supported; write the class out");
      break;
    case 'p':
    case 'P': {
      // PCRE2 reads a script's name as Script_Extensions, Oniguruma as Script.
      for (const std::string_view script : {"Han", "Hiragana", "Katakana", "Hangul", "Latin",
                                            "Cyrillic", "Greek", "Arabic", "Hebrew", "Thai"}) {
        const std::string braced = concat("{", script, "}");
        if (pattern.substr(position + 1).starts_with(braced)) {
          out += concat("\\", c, "{sc:", script, "}");
          return position + 1 + braced.size();
        }
      }
      break;
    }
    default:
      break;
  }
  out += '\\';
  out += c;
  return position + 1;
}

}  // namespace

std::string pcre2_pattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t position = 0; position < pattern.size();) {
    const char c = pattern[position];
    if (c == '\\' && position + 1 < pattern.size()) {
      position = translate_escape(pattern, position + 1, in_class, out);
      continue;
    }
    if (in_class) {
      TANDEM_REQUIRE(c != '[' && !pattern.substr(position).starts_with("&&"), "the pattern '",
                     pattern, "' of the tokenizer nests or intersects classes, which is not ",
                     "supported; write the class out");
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      if (position + 1 < pattern.size() && pattern[position + 1] == '^') {
        out += '[';
        ++position;
      }
    }
    out += pattern[position++];
  }
  return out;
}

struct Regex::Impl {
  std::string pattern;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, &pcre2_code_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context{
      nullptr, &pcre2_match_context_free};
};

Regex::Regex(std::string_view pattern) {
  const auto impl = std::make_shared<Impl>();
  impl->pattern = pattern;
  const std::string translated = pcre2_pattern(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ always match at line borders: PCRE2_MULTILINE.
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                 nullptr));
  TANDEM_REQUIRE(impl->code, "the pattern '", pattern, "' of the tokenizer is wrong near byte ",
                 offset, " (", error_text(error), "); correct it in tokenizer.json");
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);  // Without JIT it is only slower.
  impl->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(impl->context.get(), 50'000'000);
  pcre2_set_heap_limit(impl->context.get(), 256 * 1024);  // KiB.
  impl_ = impl;
}

void Regex::find_all(std::string_view text, std::size_t shift, std::vector<Span>& out) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
  const std::size_t before = out.size();
  std::size_t position = 0;
  while (position < text.size()) {
    int found = pcre2_match(impl_->code.get(), subject, text.size(), position, PCRE2_NO_UTF_CHECK,
                            data.get(), impl_->context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // The interpreter keeps its stack on the heap.
      found = pcre2_match(impl_->code.get(), subject, text.size(), position,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), impl_->context.get());
    }
    if (found == PCRE2_ERROR_NOMATCH) return;
    TANDEM_REQUIRE(found >= 0, "the pattern '", impl_->pattern,
                   "' of the tokenizer fails on this text (", error_text(found),
                   "); use a simpler pattern or shorter text");
    // As Oniguruma's iterator: no empty match right behind the match before it.
    const bool empty = span[1] <= span[0];
    if (!empty || out.size() == before || out.back().end != shift + span[0]) {
      out.push_back({shift + span[0], shift + std::max(span[0], span[1])});
    }
    position = std::max<std::size_t>(position, span[1]);
    if (empty) {
      do ++position;
      while (position < text.size() && (text[position] & 0xC0) == 0x80);
    }
  }
}

}  // namespace tandem::runtime
