// SPDX-License-Identifier: Apache-2.0
// Filters on text. Like jinja2's, they turn what they are given into text first.
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

Value as_string(Runtime& rt, const Value& value) {
  return value.is_string() ? value : rt.string(to_text(rt, value));
}

template <std::string (*Convert)(std::string_view)>
Value converting(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "this filter", arguments, {});
  const Value text = as_string(rt, value);
  rt.step(text.text().size() / 4);  // a table is searched for every character
  return rt.string(Convert(text.text()), value.is_safe());
}

Value filter_string(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "string", arguments, {});
  return as_string(rt, value);
}

Value filter_trim(Runtime& rt, const Value& value, const Arguments& arguments) {
  return find_string_method("strip")(rt, as_string(rt, value), arguments);
}

Value filter_replace(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t count = bound.set(2) ? bound.integer(2, -1) : -1;
  return rt.string(replace_text(rt, to_text(rt, value), to_text(rt, bound.get(0)),
                                to_text(rt, bound.get(1)), count));
}

// Not str.title: words begin after spaces, hyphens and opening brackets only.
Value filter_title(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "title", arguments, {});
  const std::string text = to_text(rt, value);
  const auto separates = [](CodePoint c) {
    return is_space(c.value) || c.value == '-' || c.value == '(' || c.value == '{' ||
           c.value == '[' || c.value == '<';
  };
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint first = decode_at(text, i);
    std::size_t end = i + first.size;
    if (separates(first)) {
      out += text.substr(i, first.size);
    } else {
      while (end < text.size() && !separates(decode_at(text, end)))
        end += decode_at(text, end).size;
      out += to_upper(text.substr(i, first.size));
      out += to_lower(text.substr(i + first.size, end - i - first.size));
    }
    i = end;
  }
  return rt.string(std::move(out));
}

Value filter_center(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value::integer(bound.integer(0, 80)));
  return find_string_method("center")(rt, as_string(rt, value), width);
}

Value filter_indent(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "indent", arguments, {"width", "first", "blank"});
  if (value.is_undefined()) fail_undefined(rt, value);
  if (!value.is_string()) rt.fail("indent needs a string, not ", value.type_name());
  const Value width = bound.get(0, Value::integer(4));
  const std::string space =
      width.is_string() ? width.text() : repeat(rt, rt.string(" "), bound.integer(0, 4)).text();
  const bool blank = bound.truth(2, false);
  const std::string text = value.text() + "\n";
  std::string out = bound.truth(1, false) ? space : "";
  bool first = true;
  for (std::string_view line : split_lines(text, false)) {
    rt.charge(space.size() + line.size() + 1);
    if (!first) out += "\n";
    if (!first && (blank || !line.empty())) out += space;
    out += line;
    first = false;
  }
  return rt.string(std::move(out), value.is_safe());
}

Value filter_truncate(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound.integer(0, 255);
  const std::string end = bound.text(2, "...");
  const std::int64_t leeway = bound.set(3) ? bound.integer(3, 5) : 5;
  const auto end_size = static_cast<std::int64_t>(count_characters(end));
  if (length < end_size) rt.fail("truncate needs a length of at least ", end_size);
  if (leeway < 0) rt.fail("truncate needs a leeway that is not negative");
  // As in Python, what is short enough need not be a string.
  if (!value.is_string() && find_filter("length")(rt, value, {}).as_int() - leeway <= length)
    return value;
  if (!value.is_string()) rt.fail("truncate needs a string, not ", value.type_name());
  const std::string& text = value.text();
  const auto size = static_cast<std::int64_t>(count_characters(text));
  if (size - leeway <= length) return value;
  std::string cut = text.substr(0, byte_offset(text, static_cast<std::size_t>(length - end_size)));
  if (!bound.truth(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return rt.string(cut + end);
}

Value filter_wordcount(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "wordcount", arguments, {});
  const std::string text = to_text(rt, value);
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    const bool part = c.value == '_' || is_alphanumeric(c.value);
    if (part && !in_word) ++words;
    in_word = part;
    i += c.size;
  }
  return Value::integer(words);
}

Value filter_format(Runtime& rt, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    rt.fail("format takes positional or named arguments, not both");
  const std::string format = to_text(rt, value);
  if (arguments.named.empty())
    return rt.string(format_percent(rt, format, rt.tuple(arguments.positional)));
  auto named = std::make_shared<DictObject>();
  for (const auto& [name, item] : arguments.named) named->set(rt.string(name), item);
  return rt.string(format_percent(rt, format, rt.dict(std::move(named))));
}

Value filter_escape(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "escape", arguments, {});
  if (value.is_safe()) return value;
  return rt.string(escape_html(to_text(rt, value)), true);
}

Value filter_force_escape(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "forceescape", arguments, {});
  return rt.string(escape_html(to_text(rt, value)), true);
}

Value filter_safe(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "safe", arguments, {});
  return rt.string(to_text(rt, value), true);
}

std::string percent_encode(std::string_view text, bool keep_slash) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 0xF]);
    }
  }
  return out;
}

Value filter_urlencode(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "urlencode", arguments, {});
  if (value.is_string() || !iterable(value))
    return rt.string(percent_encode(to_text(rt, value), true));
  const auto field = [&](const Value& part) {  // as in a form: spaces become +
    std::string out = percent_encode(to_text(rt, part), false);
    for (std::size_t at = out.find("%20"); at != std::string::npos; at = out.find("%20", at))
      out.replace(at, 3, "+");
    return out;
  };
  const Value pairs = value.is(Kind::kDict) ? find_filter("items")(rt, value, {}) : value;
  std::string out;
  const Items fields = iterate(rt, pairs);
  for (const Value& pair : *fields) {
    const Items both = iterate(rt, pair);
    if (both->size() != 2) rt.fail("urlencode needs a dict or pairs");
    if (!out.empty()) out += "&";
    out += field((*both)[0]) + "=" + field((*both)[1]);
  }
  return rt.string(std::move(out));
}

constexpr MethodEntry kFilters[] = {
    {"capitalize", converting<capitalize>},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_force_escape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"lower", converting<to_lower>},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", converting<to_upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

Method find_text_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace tandem::runtime::jinja
