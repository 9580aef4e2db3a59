// SPDX-License-Identifier: Apache-2.0
// Methods of str that change or cut text. Those that search or test are in methods_search.cc.
#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/methods.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/unicode.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;

template <std::string (*Convert)(std::string_view)>
Value converting(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "this method", arguments, {});
  rt.step(self.text().size() / 4);  // a table is searched for every character
  return rt.string(Convert(self.text()), self.is_safe());
}

template <bool left, bool right>
Value strip(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "strip", arguments, {"chars"});
  std::string_view text = self.text();
  if (!bound.set(0)) return rt.string(std::string(strip_space(text, left, right)), self.is_safe());
  const std::string set = bound.text(0, "");
  const auto unwanted = split_characters(set);
  const auto in_set = [&](std::string_view c) {
    return std::find(unwanted.begin(), unwanted.end(), c) != unwanted.end();
  };
  rt.charge(text.size());
  const auto characters = split_characters(text);
  std::size_t begin = 0, end = characters.size();
  while (left && begin < end && in_set(characters[begin])) ++begin;
  while (right && end > begin && in_set(characters[end - 1])) --end;
  std::string out;
  for (std::size_t i = begin; i < end; ++i) out += characters[i];
  return rt.string(std::move(out), self.is_safe());
}

template <bool prefix>
Value remove_affix(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  const std::string affix = bound.text(0, "");
  std::string_view text = self.text();
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return rt.string(std::string(text));
}

Value replace(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "replace", arguments, {"old", "new", "count"}, 2);
  return rt.string(
      replace_text(rt, self.text(), bound.text(0, ""), bound.text(1, ""), bound.integer(2, -1)),
      self.is_safe());
}

enum class Align : std::uint8_t { kLeft, kRight, kCenter };

template <Align align>
Value justify(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "this method", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound.text(1, " ");
  if (count_characters(fill) != 1) rt.fail("the fill must be exactly one character");
  const auto size = static_cast<std::int64_t>(count_characters(self.text()));
  const std::int64_t width = bound.integer(0, 0);
  if (width <= size) return self;
  const std::int64_t missing = width - size;
  std::int64_t before = align == Align::kRight ? missing : 0;
  if (align == Align::kCenter) before = missing / 2 + (missing & width & 1);
  const Value one = rt.string(fill);
  return rt.string(repeat(rt, one, before).text() + self.text() +
                   repeat(rt, one, missing - before).text());
}

Value zero_fill(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "zfill", arguments, {"width"}, 1);
  const std::string& text = self.text();
  const std::int64_t missing =
      bound.integer(0, 0) - static_cast<std::int64_t>(count_characters(text));
  if (missing <= 0) return self;
  const bool sign = text.starts_with("-") || text.starts_with("+");
  return rt.string(text.substr(0, sign ? 1 : 0) + repeat(rt, rt.string("0"), missing).text() +
                   text.substr(sign ? 1 : 0));
}

Value expand_tabs(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "expandtabs", arguments, {"tabsize"});
  const std::int64_t size = bound.integer(0, 8);
  std::string out;
  std::int64_t column = 0;
  for (std::string_view c : split_characters(self.text())) {
    if (c == "\t") {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      out += repeat(rt, rt.string(" "), spaces).text();
      column += spaces;
    } else {
      out += c;
      column = c == "\n" || c == "\r" ? 0 : column + 1;
    }
  }
  return rt.string(std::move(out));
}

Value join(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "join", arguments, {"iterable"}, 1);
  const Items items = iterate(rt, bound.get(0));
  std::string out;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const Value& item = (*items)[i];
    if (!item.is_string())
      rt.fail("join needs strings, item ", i, " is of type ", item.type_name());
    rt.charge(self.text().size() + item.text().size());
    if (i > 0) out += self.text();
    out += item.text();
  }
  return Value::string(std::move(out));
}

Value format(Runtime& rt, const Value& self, const Arguments& arguments) {
  return rt.string(format_braces(rt, self.text(), arguments));
}

Value format_map(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "format_map", arguments, {"mapping"}, 1);
  if (!bound.get(0).is(Kind::kDict)) rt.fail("format_map needs a dict");
  Arguments named;
  for (const auto& [key, value] : bound.get(0).dict().entries)
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  return rt.string(format_braces(rt, self.text(), named));
}

constexpr MethodEntry kMethods[] = {
    {"capitalize", converting<capitalize>},
    {"casefold", converting<case_fold>},
    {"center", justify<Align::kCenter>},
    {"expandtabs", expand_tabs},
    {"format", format},
    {"format_map", format_map},
    {"join", join},
    {"ljust", justify<Align::kLeft>},
    {"lower", converting<to_lower>},
    {"lstrip", strip<true, false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace},
    {"rjust", justify<Align::kRight>},
    {"rstrip", strip<false, true>},
    {"strip", strip<true, true>},
    {"swapcase", converting<swap_case>},
    {"title", converting<title_case>},
    {"upper", converting<to_upper>},
    {"zfill", zero_fill},
};

}  // namespace

std::string replace_text(Runtime& rt, std::string_view text, std::string_view from,
                         std::string_view to, std::int64_t count) {
  std::string out;
  std::size_t at = 0;
  while (count != 0) {
    const std::size_t found = from.empty() ? at : find_text(rt, text, from, at);
    if (found == std::string_view::npos) break;
    rt.step();
    rt.charge(to.size());
    out += text.substr(at, found - at);
    out += to;
    --count;
    at = found + from.size();
    if (!from.empty()) continue;
    if (at >= text.size()) return out;  // an empty `from` stands before each character and last
    const std::size_t size = decode_at(text, at).size;
    out += text.substr(at, size);
    at += size;
  }
  out += text.substr(std::min(at, text.size()));
  return out;
}

Method find_string_method(std::string_view name) {
  if (const Method method = find_in(kMethods, name)) return method;
  return find_string_search_method(name);
}

}  // namespace tandem::runtime::jinja
