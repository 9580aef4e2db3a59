// SPDX-License-Identifier: Apache-2.0
// Python's format mini-language and str.format.
#include <charconv>
#include <cmath>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1'000'000;
constexpr std::int64_t kMaxPrecision = 1000;

struct Spec {
  std::string fill = " ";
  char align = '\0', sign = '-', type = '\0', group = '\0';
  bool alternate = false, zero = false;
  std::int64_t width = 0, precision = -1;
};

std::int64_t read_number(std::string_view& text) {
  std::int64_t number = -1;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9' && number < kMaxWidth) {
    number = std::max<std::int64_t>(number, 0) * 10 + (text[0] - '0');
    text.remove_prefix(1);
  }
  return number;
}

Spec parse_spec(Runtime& rt, std::string_view text) {
  constexpr std::string_view kAligns = "<>=^";
  Spec spec;
  const auto whole = text;
  const auto take = [&](std::string_view any) -> char {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return '\0';
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  const std::size_t first = text.empty() ? 0 : decode_at(text, 0).size;
  if (first > 0 && first < text.size() && kAligns.find(text[first]) != std::string_view::npos) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else {
    spec.align = take(kAligns);
  }
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0")) {
    spec.zero = true;
    if (!spec.align) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = std::max<std::int64_t>(0, read_number(text));
  spec.group = take(",_");
  if (take(".")) {
    spec.precision = read_number(text);
    if (spec.precision < 0) rt.fail("the format '", whole, "' lacks a precision after '.'");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) rt.fail("the format '", whole, "' is not valid");
  if (spec.width >= kMaxWidth || spec.precision > kMaxPrecision)
    rt.fail("the format '", whole, "' asks for too many characters");
  return spec;
}

std::string group_digits(std::string_view digits, char separator, std::size_t every) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

// `sign` stays in front when the padding goes between it and the digits ('=').
std::string pad(Runtime& rt, const Spec& spec, std::string_view sign, std::string_view body,
                char default_align) {
  const char align = spec.align ? spec.align : default_align;
  const auto size = static_cast<std::int64_t>(sign.size() + count_characters(body));
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - size);
  const std::int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  rt.charge(static_cast<std::uint64_t>(missing) * spec.fill.size());
  std::string left, right;
  for (std::int64_t i = 0; i < before; ++i) left += spec.fill;
  for (std::int64_t i = before; i < missing; ++i) right += spec.fill;
  if (align == '=') return std::string(sign) + left + std::string(body) + right;
  return left + std::string(sign) + std::string(body) + right;
}

std::string_view sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

// Zeros that fill a grouped number are grouped as well.
std::string group_with_zeros(const Spec& spec, std::string digits, std::size_t rest,
                             std::size_t every) {
  std::string grouped = group_digits(digits, spec.group, every);
  const auto width = static_cast<std::size_t>(spec.width);
  while (spec.fill == "0" && spec.align == '=' && grouped.size() + rest < width) {
    digits.insert(digits.begin(), '0');
    grouped = group_digits(digits, spec.group, every);
  }
  return grouped;
}

std::string format_integer(Runtime& rt, const Spec& spec, std::int64_t value) {
  if (spec.precision >= 0) rt.fail("a precision is not allowed in the format of an integer");
  const bool negative = value < 0;
  const std::uint64_t magnitude =
      negative ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  if (spec.type == 'c') {
    if (negative || magnitude > 0x10FFFF) rt.fail("'c' needs a character's number");
    std::string character;
    append_utf8(character, static_cast<char32_t>(magnitude));
    return pad(rt, spec, "", character, '<');
  }
  const int base = spec.type == 'b'                       ? 2
                   : spec.type == 'o'                     ? 8
                   : spec.type == 'x' || spec.type == 'X' ? 16
                                                          : 10;
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr;
  std::string digits(buffer, end);
  if (spec.type == 'X')
    for (char& c : digits) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string sign(sign_of(spec, negative));
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  if (spec.group) digits = group_with_zeros(spec, digits, sign.size(), base == 10 ? 3 : 4);
  return pad(rt, spec, sign, digits, '>');
}

std::string format_real(Runtime& rt, const Spec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string body;
  if (spec.type == '\0' && spec.precision < 0) {
    body = float_repr(magnitude);
  } else if (spec.type == '\0') {  // like 'g', but with a digit after the point
    body =
        format_float(magnitude, static_cast<int>(std::max<std::int64_t>(1, spec.precision)), 'g');
    if (body.find_first_not_of("0123456789") == std::string::npos) {
      if (static_cast<std::int64_t>(body.size()) >= std::max<std::int64_t>(1, spec.precision))
        body = format_float(magnitude,
                            static_cast<int>(std::max<std::int64_t>(1, spec.precision)) - 1, 'e');
      else
        body += ".0";
    }
  } else {
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    const bool percent = spec.type == '%';
    const char type = percent ? 'f' : spec.type == 'n' ? 'g' : spec.type;
    body = format_float(percent ? magnitude * 100 : magnitude, precision, type, spec.alternate);
    if (percent) body += "%";
  }
  const std::string_view sign = sign_of(spec, negative);
  if (spec.group) {
    const std::size_t end = std::min(body.find_first_not_of("0123456789"), body.size());
    const std::string tail = body.substr(end);
    body = group_with_zeros(spec, body.substr(0, end), sign.size() + tail.size(), 3) + tail;
  }
  return pad(rt, spec, sign, body, '>');
}

/// A replacement field without its braces: "name.attribute[index]!r:spec".
std::string format_field(Runtime& rt, std::string_view field, const CallArguments& arguments,
                         std::size_t& next, int nesting);

std::string format_nested(Runtime& rt, std::string_view format, const CallArguments& arguments,
                          std::size_t& next, int nesting) {
  if (nesting > 2) rt.fail("the format string nests too deep");
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool doubled = i + 1 < format.size() && format[i + 1] == c;
    if (c != '{' && c != '}') {
      out.push_back(c);
    } else if (doubled) {
      out.push_back(c);
      ++i;
    } else if (c == '}') {
      rt.fail("single '}' in a format string");
    } else {
      std::size_t end = i + 1;
      for (int open = 1; end < format.size(); ++end) {
        if (format[end] == '{') ++open;
        if (format[end] == '}' && --open == 0) break;
      }
      if (end >= format.size()) rt.fail("'{' in a format string is never closed");
      out += format_field(rt, format.substr(i + 1, end - i - 1), arguments, next, nesting);
      i = end;
    }
    if (out.size() > kMaxBytes / 4) rt.charge(kMaxBytes + 1);
  }
  rt.charge(out.size());
  return out;
}

Value field_value(Runtime& rt, std::string_view path, const CallArguments& arguments,
                  std::size_t& next) {
  const std::size_t head_end = std::min(path.find_first_of(".["), path.size());
  const std::string head(path.substr(0, head_end));
  Value value;
  const bool number = head.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    if (head.size() > 9) rt.fail("the format string has an index that is too large");
    const std::size_t index = head.empty() ? next++ : std::stoul(head);
    if (index >= arguments.positional.size())
      rt.fail("the format string needs argument ", index, ", which was not given");
    value = arguments.positional[index];
  } else {
    bool found = false;
    for (const auto& [name, argument] : arguments.named) {
      if (name != head) continue;
      value = argument;
      found = true;
    }
    if (!found) rt.fail("the format string needs the argument '", head, "', which was not given");
  }
  path.remove_prefix(head_end);
  while (!path.empty()) {
    const bool item = path[0] == '[';
    std::size_t end = item ? path.find(']') : path.find_first_of(".[", 1);
    if (item && end == std::string_view::npos) rt.fail("'[' in a format string is never closed");
    end = std::min(end, path.size());
    const std::string part(path.substr(1, end - 1));
    const bool digits = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    if (item)
      value = get_item(rt, value, digits ? Value::integer(std::stoll(part)) : rt.string(part));
    else
      value = get_attribute(rt, value, part);
    path.remove_prefix(std::min(path.size(), end + (item ? 1 : 0)));
  }
  return value;
}

std::string format_field(Runtime& rt, std::string_view field, const CallArguments& arguments,
                         std::size_t& next, int nesting) {
  rt.step();
  const std::size_t head = std::min(field.find_first_of(":!"), field.size());
  Value value = field_value(rt, field.substr(0, head), arguments, next);
  std::string_view rest = field.substr(head);
  if (rest.starts_with("!")) {
    const char conversion = rest.size() > 1 ? rest[1] : '\0';
    if (conversion != 's' && conversion != 'r')
      rt.fail("a format string may convert with !s or !r");
    value = rt.string(conversion == 's' ? to_text(rt, value) : repr(rt, value));
    rest.remove_prefix(2);
  }
  if (!rest.empty() && rest[0] != ':') rt.fail("the format string lacks a ':' before its format");
  if (!rest.empty()) rest.remove_prefix(1);
  return format_spec(rt, value, format_nested(rt, rest, arguments, next, nesting + 1));
}

}  // namespace

std::string format_spec(Runtime& rt, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(rt, value);
  const Spec spec = parse_spec(rt, text);
  const bool integer_type = std::string_view("bcdnoxX").find(spec.type) != std::string_view::npos;
  if (value.is_string() || (value.is(Kind::kBool) && spec.type == 's')) {
    if ((spec.type && spec.type != 's') || spec.align == '=' || spec.group)
      rt.fail("the format '", text, "' is not for strings");
    std::string body = to_text(rt, value);
    if (spec.precision >= 0)
      body = body.substr(0, byte_offset(body, static_cast<std::size_t>(spec.precision)));
    return pad(rt, spec, "", body, '<');
  }
  if (value.is_integral() && (spec.type == '\0' || integer_type))
    return format_integer(rt, spec, value.as_int());
  if (value.is_number() && (spec.type == '\0' || spec.type == 'n' || !integer_type) &&
      spec.type != 's')
    return format_real(rt, spec, value.as_real());
  rt.fail("the format '", text, "' is not for values of type ", value.type_name());
}

std::string format_braces(Runtime& rt, std::string_view format, const CallArguments& arguments) {
  std::size_t next = 0;
  return format_nested(rt, format, arguments, next, 0);
}

}  // namespace tandem::runtime::jinja
