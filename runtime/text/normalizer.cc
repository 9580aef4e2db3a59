// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/device/error.h"
#include "runtime/text/characters.h"
#include "runtime/text/replacer.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

/// The Unicode normalisation form that `options` of utf8proc select.
std::string unicode_form(std::string text, int options) {
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  TANDEM_REQUIRE(size >= 0, "cannot bring the text into a Unicode normalisation form (",
                 utf8proc_errmsg(size), "); shorten it");
  return {reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size)};
}

template <typename Function>
std::string map_characters(std::string_view text, Function append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Step step = utf8_step(text, position);
    append(step.character, out);
    position += step.length;
  }
  return out;
}

std::string lowercase(std::string text) {
  return map_characters(text, [](char32_t character, std::string& out) {
    if (character == 0x130) {  // The one character whose small form is two.
      out += "i\xCC\x87";
    } else {
      append_utf8(
          out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
  });
}

std::string strip_accents(std::string text) {
  return map_characters(text, [](char32_t character, std::string& out) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
      case UTF8PROC_CATEGORY_MN:
      case UTF8PROC_CATEGORY_MC:
      case UTF8PROC_CATEGORY_ME:
        return;
      default:
        append_utf8(out, character);
    }
  });
}

std::string strip(std::string text, bool left, bool right) {
  if (right) text.resize(text.size() - white_space_at_end(text));
  if (left) text.erase(0, white_space_at_start(text));
  return text;
}

}  // namespace

void Normalizer::add(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  const auto add_form = [&](int options) {
    steps_.push_back([=](std::string text) { return unicode_form(std::move(text), options); });
  };
  if (type == "Sequence") {
    const JsonNode list = node.at("normalizers");
    for (std::size_t i = 0; i < list.array().size(); ++i) add(list.element(i));
  } else if (type == "NFC") {
    add_form(UTF8PROC_COMPOSE);
  } else if (type == "NFD") {
    add_form(UTF8PROC_DECOMPOSE);
  } else if (type == "NFKC") {
    add_form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  } else if (type == "NFKD") {
    add_form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  } else if (type == "Lowercase") {
    steps_.push_back(lowercase);
  } else if (type == "StripAccents") {
    steps_.push_back(strip_accents);
  } else if (type == "Strip") {
    const bool left = node.boolean_or("strip_left", true);
    const bool right = node.boolean_or("strip_right", true);
    steps_.push_back([=](std::string text) { return strip(std::move(text), left, right); });
  } else if (type == "Prepend") {
    const std::string front(node.at("prepend").string());
    steps_.push_back([=](std::string text) { return text.empty() ? text : front + text; });
  } else if (type == "Replace") {
    const Replacer replacer = Replacer::from_json(node);
    steps_.push_back([=](std::string text) { return replacer.apply(text); });
  } else {
    node.fail(concat("is the unknown normalizer '", type, "'"));
  }
}

Normalizer Normalizer::from_json(const JsonNode& node) {
  Normalizer normalizer;
  normalizer.add(node);
  return normalizer;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const auto& step : steps_) out = step(std::move(out));
  return out;
}

}  // namespace tandem::runtime
