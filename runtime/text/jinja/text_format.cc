// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/text_format.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "runtime/text/jinja/unicode.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

void append_hex(std::string& out, char32_t code, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out.push_back(kDigits[code >> shift & 0xF]);
}

void append_items(Runtime& rt, std::string& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(rt, out, items[i]);
  }
}

void append_sequence(Runtime& rt, std::string& out, const Value& value) {
  const SequenceObject& sequence = value.sequence();
  if (value.is(Kind::kRange)) {
    out += sequence.label;
  } else if (value.is(Kind::kIterator)) {
    out += "<" + sequence.label + " object>";
  } else if (value.is(Kind::kTuple)) {
    out += "(";
    append_items(rt, out, sequence.items);
    out += sequence.items.size() == 1 ? ",)" : ")";
  } else {
    const bool view = value.is(Kind::kView);
    if (view) out += sequence.label + "(";
    out += "[";
    append_items(rt, out, sequence.items);
    out += view ? "])" : "]";
  }
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(result.ptr - buffer));
  const std::size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  const bool negative = shortest.front() == '-';
  std::string digits(1, shortest[negative ? 1 : 0]);
  const std::string_view mantissa = shortest.substr(negative ? 1 : 0, e - (negative ? 1 : 0));
  if (mantissa.size() > 2) digits += mantissa.substr(2);
  std::string out = negative ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += "0";
    return out + std::to_string(std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent + 1);
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_quoted(std::string& out, std::string_view text) {
  const bool single =
      text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  out.push_back(quote);
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (is_printable(c.value)) {
      out += text.substr(i, c.size);
    } else {
      const int digits = c.value < 0x100 ? 2 : c.value < 0x10000 ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      append_hex(out, c.value, digits);
    }
    i += c.size;
  }
  out.push_back(quote);
}

void append_repr(Runtime& rt, std::string& out, const Value& value) {
  const Runtime::Level level(rt);
  rt.step();
  const std::size_t before = out.size();
  if (value.is_string()) {
    if (value.is_safe()) out += "Markup(";
    append_quoted(out, value.text());
    if (value.is_safe()) out += ")";
    rt.charge(out.size() - before);
  } else if (value.is_sequence_object()) {
    append_sequence(rt, out, value);
  } else if (value.is(Kind::kDict)) {
    out += "{";
    for (const auto& [key, item] : value.dict().entries) {
      if (out.size() > before + 1) out += ", ";
      append_repr(rt, out, key);
      out += ": ";
      append_repr(rt, out, item);
    }
    out += "}";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += to_text(rt, value);
  }
}

std::string repr(Runtime& rt, const Value& value) {
  std::string out;
  append_repr(rt, out, value);
  return out;
}

std::string to_text(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.as_int() ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.as_int());
    case Kind::kFloat:
      return float_repr(value.as_real());
    case Kind::kString:
      return value.text();
    case Kind::kDynamic:
      return value.dynamic().repr(rt);
    default:
      return repr(rt, value);
  }
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace tandem::runtime::jinja
