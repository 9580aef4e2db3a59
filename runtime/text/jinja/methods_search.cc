// SPDX-License-Identifier: Apache-2.0
// Methods of str that search, split or test.
#include <algorithm>
#include <cstring>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/methods.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/unicode.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;
constexpr auto kNowhere = std::string_view::npos;

Value pieces(Runtime& rt, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  for (std::string_view part : parts) out.push_back(rt.string(std::string(part)));
  return rt.list(std::move(out));
}

std::vector<std::string_view> split_on_space(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  while (true) {
    text = strip_space(text, true, false);
    if (text.empty()) return parts;
    if (most-- == 0) {
      parts.push_back(text);
      return parts;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space(decode_at(text, end).value))
      end += decode_at(text, end).size;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

// The last `most` words, and before them what is left of the text.
std::vector<std::string_view> split_on_space_from_right(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> words = split_on_space(text, -1);
  const auto count = static_cast<std::int64_t>(words.size());
  if (most < 0 || count <= most) return words;
  const std::string_view last_of_rest = words[static_cast<std::size_t>(count - most - 1)];
  const char* end = last_of_rest.data() + last_of_rest.size();
  words.erase(words.begin(), words.begin() + (count - most));
  words.insert(words.begin(), text.substr(0, static_cast<std::size_t>(end - text.data())));
  return words;
}

template <bool from_right>
Value split(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "split", arguments, {"sep", "maxsplit"});
  std::string_view text = self.text();
  std::int64_t most = bound.integer(1, -1);
  rt.charge(text.size());
  if (!bound.set(0)) {
    return pieces(rt,
                  from_right ? split_on_space_from_right(text, most) : split_on_space(text, most));
  }
  const std::string separator = bound.text(0, "");
  if (separator.empty()) rt.fail("split needs a separator that is not empty");
  std::vector<std::string_view> parts;
  while (most-- != 0) {
    const std::size_t found =
        from_right ? find_last(rt, text, separator) : find_text(rt, text, separator, 0);
    if (found == kNowhere) break;
    const std::string_view left = text.substr(0, found);
    const std::string_view right = text.substr(found + separator.size());
    parts.push_back(from_right ? right : left);
    text = from_right ? left : right;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return pieces(rt, parts);
}

template <bool from_right>
Value partition(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "partition", arguments, {"sep"}, 1);
  const std::string separator = bound.text(0, "");
  if (separator.empty()) rt.fail("partition needs a separator that is not empty");
  const std::string& text = self.text();
  const std::size_t found =
      from_right ? find_last(rt, text, separator) : find_text(rt, text, separator, 0);
  const Value none = rt.string(""), whole = rt.string(text);
  if (found == kNowhere)
    return rt.tuple(from_right ? std::vector{none, none, whole} : std::vector{whole, none, none});
  return rt.tuple({rt.string(text.substr(0, found)), rt.string(separator),
                   rt.string(text.substr(found + separator.size()))});
}

Value split_lines_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "splitlines", arguments, {"keepends"});
  return pieces(rt, split_lines(self.text(), bound.truth(0, false)));
}

/// The part [start, end) of a text, in characters, as bytes.
struct Part {
  std::size_t begin = 0;  ///< Byte offset of the part.
  std::string_view text;
  bool valid = true;  ///< start is not past the end.
};

Part part_of(const std::string& text, const Bound& bound) {
  if (!bound.set(1) && !bound.set(2)) return {0, text, true};
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const auto clamp = [&](std::int64_t i) {
    return i < 0 ? std::max<std::int64_t>(0, i + size) : i;
  };
  const std::int64_t start = bound.set(1) ? clamp(bound.integer(1, 0)) : 0;
  const std::int64_t end = bound.set(2) ? std::min(size, clamp(bound.integer(2, size))) : size;
  if (start > end || start > size) return {0, {}, false};
  const std::size_t first = byte_offset(text, static_cast<std::size_t>(start));
  const std::size_t last = byte_offset(text, static_cast<std::size_t>(end));
  return {first, std::string_view(text).substr(first, last - first), true};
}

template <bool from_right, bool must_exist>
Value find(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, must_exist ? "index" : "find", arguments, {"sub", "start", "end"}, 1);
  const std::string sub = bound.text(0, "");
  const Part part = part_of(self.text(), bound);
  const std::size_t found = !part.valid  ? kNowhere
                            : from_right ? find_last(rt, part.text, sub)
                                         : find_text(rt, part.text, sub, 0);
  if (found != kNowhere)
    return Value::integer(static_cast<std::int64_t>(
        count_characters(std::string_view(self.text()).substr(0, part.begin + found))));
  if (must_exist) rt.fail("substring not found");
  return Value::integer(-1);
}

Value count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "count", arguments, {"sub", "start", "end"}, 1);
  const std::string sub = bound.text(0, "");
  const Part part = part_of(self.text(), bound);
  if (!part.valid) return Value::integer(0);
  if (sub.empty())
    return Value::integer(static_cast<std::int64_t>(count_characters(part.text)) + 1);
  std::int64_t found = 0;
  for (std::size_t at = find_text(rt, part.text, sub, 0); at != kNowhere;
       at = find_text(rt, part.text, sub, at + sub.size()))
    ++found;
  return Value::integer(found);
}

template <bool at_start>
Value affix_test(Runtime& rt, const Value& self, const Arguments& arguments) {
  const char* name = at_start ? "startswith" : "endswith";
  const Bound bound(rt, name, arguments, {"affix", "start", "end"}, 1);
  const Part part = part_of(self.text(), bound);
  const Value affix = bound.get(0);
  std::vector<Value> candidates = {affix};
  if (affix.is(Kind::kTuple)) candidates = affix.sequence().items;
  for (const Value& candidate : candidates) {
    if (!candidate.is_string())
      rt.fail(name, " needs a string or a tuple of strings, not ", candidate.type_name());
    if (part.valid && (at_start ? part.text.starts_with(candidate.text())
                                : part.text.ends_with(candidate.text())))
      return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool (*Check)(char32_t), bool empty_result>
Value every(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "this method", arguments, {});
  const std::string& text = self.text();
  rt.step(text.size() / 4);  // a table is searched for every character
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (!Check(c.value)) return Value::boolean(false);
    i += c.size;
  }
  return Value::boolean(empty_result || !text.empty());
}

bool is_ascii(char32_t code) { return code < 0x80; }

Value is_title(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "istitle", arguments, {});
  bool any = false, in_word = false;
  for (std::size_t i = 0; i < self.text().size();) {
    const CodePoint c = decode_at(self.text(), i);
    const bool upper = is_upper(c.value), lower = is_lower(c.value);
    if ((upper && in_word) || (lower && !in_word)) return Value::boolean(false);
    in_word = upper || lower;
    any |= in_word;
    i += c.size;
  }
  return Value::boolean(any);
}

Value is_identifier(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "isidentifier", arguments, {});
  bool first = true;
  for (std::size_t i = 0; i < self.text().size();) {
    const CodePoint c = decode_at(self.text(), i);
    const bool good = c.value == '_' || is_alpha(c.value) || (!first && is_decimal(c.value));
    if (!good) return Value::boolean(false);
    first = false;
    i += c.size;
  }
  return Value::boolean(!first);
}

template <bool upper>
Value case_test(Runtime& rt, const Value& self, const Arguments& arguments) {
  return find_test(upper ? "upper" : "lower")(rt, self, arguments);
}

constexpr MethodEntry kMethods[] = {
    {"count", count},
    {"endswith", affix_test<false>},
    {"find", find<false, false>},
    {"index", find<false, true>},
    {"isalnum", every<is_alphanumeric, false>},
    {"isalpha", every<is_alpha, false>},
    {"isascii", every<is_ascii, true>},
    {"isdecimal", every<is_decimal, false>},
    {"isdigit", every<is_digit, false>},
    {"isidentifier", is_identifier},
    {"islower", case_test<false>},
    {"isnumeric", every<is_numeric, false>},
    {"isprintable", every<is_printable, true>},
    {"isspace", every<is_space, false>},
    {"istitle", is_title},
    {"isupper", case_test<true>},
    {"partition", partition<false>},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"split", split<false>},
    {"splitlines", split_lines_method},
    {"startswith", affix_test<true>},
};

bool ends_line(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

std::size_t find_text(Runtime& rt, std::string_view text, std::string_view sub, std::size_t from) {
  // memmem is linear in glibc; string_view::find takes the product of both lengths at worst.
  const void* at = ::memmem(text.data() + from, text.size() - from, sub.data(), sub.size());
  const std::size_t found =
      at ? static_cast<std::size_t>(static_cast<const char*>(at) - text.data()) : kNowhere;
  rt.step(1 + (std::min(found, text.size()) - from + sub.size()) / 32);
  return found;
}

std::size_t find_last(Runtime& rt, std::string_view text, std::string_view sub) {
  rt.step(1 + text.size() * (sub.size() + 1) / 256);
  return text.rfind(sub);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && !ends_line(decode_at(text, end).value))
      end += decode_at(text, end).size;
    std::size_t next = end < text.size() ? end + decode_at(text, end).size : end;
    if (end < text.size() && text[end] == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.push_back(text.substr(begin, (keep_ends ? next : end) - begin));
    begin = next;
  }
  return lines;
}

Method find_string_search_method(std::string_view name) { return find_in(kMethods, name); }

}  // namespace tandem::runtime::jinja
