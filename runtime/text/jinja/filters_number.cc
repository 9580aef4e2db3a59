// SPDX-License-Identifier: Apache-2.0
// Filters on numbers, and the conversions to them.
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;

/// Digits with single underscores between them, as Python's int() and float() allow.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto alnum = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<std::int64_t> parse_int(Runtime& rt, std::string_view text, std::int64_t base) {
  auto clean = without_underscores(strip_space(text, true, true));
  if (!clean) return std::nullopt;
  std::string_view digits = *clean;
  const bool negative = digits.starts_with("-");
  if (negative || digits.starts_with("+")) digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named && (base == 0 || base == named)) {
      base = named;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  std::uint64_t value = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (digits.empty() || result.ptr != digits.data() + digits.size()) return std::nullopt;
  const std::uint64_t most = std::uint64_t{1} << 63;
  if (result.ec == std::errc::result_out_of_range || value > most - (negative ? 0 : 1))
    rt.fail("the integer ", digits, " does not fit in 64 bits");
  return negative ? static_cast<std::int64_t>(-value) : static_cast<std::int64_t>(value);
}

std::optional<double> parse_float(std::string_view text) {
  const auto clean = without_underscores(strip_space(text, true, true));
  if (!clean) return std::nullopt;
  std::string_view digits = *clean;
  const bool negative = digits.starts_with("-");
  if (negative || digits.starts_with("+")) digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ptr != digits.data() + digits.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range)
    value =
        digits.find("e-") == std::string_view::npos && digits.find("E-") == std::string_view::npos
            ? std::numeric_limits<double>::infinity()
            : 0.0;
  else if (result.ec != std::errc())
    return std::nullopt;
  return negative ? -value : value;
}

std::optional<std::int64_t> truncate(Runtime& rt, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 9223372036854775808.0) rt.fail("the integer does not fit in 64 bits");
  return static_cast<std::int64_t>(value);
}

Value filter_int(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "int", arguments, {"default", "base"});
  const Value otherwise = bound.get(0, Value::integer(0));
  if (value.is_undefined()) fail_undefined(rt, value);
  std::optional<std::int64_t> result;
  if (value.is_integral()) {
    result = value.as_int();
  } else if (value.is(Kind::kFloat)) {
    if (std::isinf(value.as_real())) rt.fail("cannot convert infinity to an integer");
    result = truncate(rt, value.as_real());
  } else if (value.is_string()) {
    result = parse_int(rt, value.text(), bound.integer(1, 10));
    if (!result)
      if (const auto real = parse_float(value.text())) result = truncate(rt, *real);
  }
  return result ? Value::integer(*result) : otherwise;
}

Value filter_float(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "float", arguments, {"default"});
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is_string())
    if (const auto real = parse_float(value.text())) return Value::real(*real);
  return bound.get(0, Value::real(0));
}

Value filter_abs(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "abs", arguments, {});
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_real()));
  if (!value.is_integral()) rt.fail("abs needs a number, not ", value.type_name());
  return value.as_int() < 0 ? negate(rt, value) : Value::integer(value.as_int());
}

// Rounds half to even on the exact binary value, as Python does: through decimal digits.
double round_to(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  return *parse_float(format_float(value, static_cast<int>(precision), 'f'));
}

std::int64_t round_integer(Runtime& rt, std::int64_t value, std::int64_t precision) {
  if (precision >= 0) return value;
  if (precision < -18) return 0;
  std::int64_t unit = 1;
  for (std::int64_t i = 0; i < -precision; ++i) unit *= 10;
  const std::int64_t rest = value % unit, half = unit / 2;
  std::int64_t down = value - rest;
  const bool away =
      rest > half || rest < -half || ((rest == half || rest == -half) && down / unit % 2 != 0);
  if (away && __builtin_add_overflow(down, rest < 0 ? -unit : unit, &down))
    rt.fail("the integer result does not fit in 64 bits");
  return down;
}

Value filter_round(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "round", arguments, {"precision", "method"});
  const std::int64_t precision = bound.integer(0, 0);
  const std::string method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor")
    rt.fail("the method of round must be common, ceil or floor");
  if (value.is_undefined()) fail_undefined(rt, value);
  if (!value.is_number()) rt.fail("round needs a number, not ", value.type_name());
  if (method == "common") {
    if (value.is_integral()) return Value::integer(round_integer(rt, value.as_int(), precision));
    return Value::real(round_to(value.as_real(), precision));
  }
  const Value power =
      arithmetic(rt, Operator::kPower, Value::integer(10), Value::integer(precision));
  const double scaled = arithmetic(rt, Operator::kMultiply, value, power).as_real();
  const auto whole = truncate(rt, method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  if (!whole) rt.fail("round needs a finite number");
  return arithmetic(rt, Operator::kDivide, Value::integer(*whole), power);
}

Value filter_filesizeformat(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "filesizeformat", arguments, {"binary"});
  const bool binary = bound.truth(0, false);
  const auto parsed = value.is_string()   ? parse_float(value.text())
                      : value.is_number() ? std::optional(value.as_real())
                                          : std::nullopt;
  if (!parsed) rt.fail("filesizeformat needs a number, not ", value.type_name());
  const double bytes = *parsed, base = binary ? 1024 : 1000;
  if (bytes == 1) return rt.string("1 Byte");
  if (bytes < base) {
    const auto whole = truncate(rt, bytes);
    if (!whole) rt.fail("filesizeformat needs a finite number");
    return rt.string(concat(*whole, " Bytes"));
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kPrefixes.size() && !(bytes < unit); ++i) unit *= base;
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return rt.string(format_float(base * bytes / unit, 1, 'f') + " " + prefix +
                   (binary ? "iB" : "B"));
}

constexpr MethodEntry kFilters[] = {
    {"abs", filter_abs},     {"filesizeformat", filter_filesizeformat},
    {"float", filter_float}, {"int", filter_int},
    {"round", filter_round},
};

}  // namespace

Method find_number_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace tandem::runtime::jinja
