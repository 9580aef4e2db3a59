// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"

namespace tandem::runtime::jinja {
namespace {

constexpr const char* kTooBig = "the integer result does not fit in 64 bits";

Value checked(Runtime& rt, bool overflow, const std::int64_t& result) {
  if (overflow) rt.fail(kTooBig);
  return Value::integer(result);
}

Value integer_power(Runtime& rt, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (true) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) rt.fail(kTooBig);
    exponent >>= 1;
    if (exponent == 0) return Value::integer(result);
    if (__builtin_mul_overflow(base, base, &base)) rt.fail(kTooBig);
  }
}

Value integers(Runtime& rt, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      return checked(rt, __builtin_add_overflow(a, b, &result), result);
    case Operator::kSubtract:
      return checked(rt, __builtin_sub_overflow(a, b, &result), result);
    case Operator::kMultiply:
      return checked(rt, __builtin_mul_overflow(a, b, &result), result);
    case Operator::kPower:
      if (b >= 0) return integer_power(rt, a, b);
      if (a == 0) rt.fail("0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case Operator::kDivide:
    case Operator::kFloorDivide:
    case Operator::kModulo:
      break;
  }
  if (b == 0) rt.fail("division by zero");
  if (op == Operator::kDivide)
    return Value::real(
        static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  if (b == -1) {  // INT64_MIN / -1 traps
    if (op == Operator::kModulo) return Value::integer(0);
    return checked(rt, __builtin_sub_overflow(std::int64_t{0}, a, &result), result);
  }
  // Python rounds down and gives the remainder the divisor's sign.
  const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
  if (op == Operator::kModulo) return Value::integer(a % b + (adjust ? b : 0));
  return Value::integer(a / b - (adjust ? 1 : 0));
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

double float_floor_divide(double a, double b) {
  const double quotient = (a - float_modulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value floats(Runtime& rt, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) rt.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
        rt.fail("a negative number to a fractional power is not real");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        rt.fail("the result of ** is too large");
      return Value::real(result);
    }
    case Operator::kDivide:
    case Operator::kFloorDivide:
    case Operator::kModulo:
      break;
  }
  if (b == 0) rt.fail("division by zero");
  if (op == Operator::kDivide) return Value::real(a / b);
  return Value::real(op == Operator::kModulo ? float_modulo(a, b) : float_floor_divide(a, b));
}

Value add_text(Runtime& rt, const Value& a, const Value& b) {
  if (!a.is_safe() && !b.is_safe()) {
    rt.charge(a.text().size() + b.text().size());
    return Value::string(a.text() + b.text());
  }
  return rt.string((a.is_safe() ? a.text() : escape_html(a.text())) +
                       (b.is_safe() ? b.text() : escape_html(b.text())),
                   true);
}

Value add_sequences(Runtime& rt, const Value& a, const Value& b) {
  rt.charge((a.sequence().items.size() + b.sequence().items.size()) * sizeof(Value));
  std::vector<Value> items = a.sequence().items;
  items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
  return rt.sequence(a.kind(), std::move(items));
}

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
  }
  return "?";
}

}  // namespace

Value repeat(Runtime& rt, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
  const std::uint64_t size =
      value.is_string() ? value.text().size() : value.sequence().items.size() * sizeof(Value);
  if (size > 0 && times > kMaxBytes / size) rt.charge(kMaxBytes + 1);
  rt.charge(size * times);
  if (value.is_string()) {
    std::string text;
    if (size > 0)
      for (std::uint64_t i = 0; i < times; ++i) text += value.text();
    return Value::string(std::move(text), value.is_safe());
  }
  std::vector<Value> items;
  if (size > 0)
    for (std::uint64_t i = 0; i < times; ++i)
      items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  return rt.sequence(value.kind(), std::move(items));
}

Value arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kModulo && a.is_string()) return rt.string(format_percent(rt, a.text(), b));
  if (a.is_undefined()) fail_undefined(rt, a);
  if (b.is_undefined()) fail_undefined(rt, b);
  if (a.is_integral() && b.is_integral()) return integers(rt, op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return floats(rt, op, a.as_real(), b.as_real());
  const auto repeatable = [](const Value& value) {
    return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple);
  };
  if (op == Operator::kAdd && a.is_string() && b.is_string()) return add_text(rt, a, b);
  if (op == Operator::kAdd && a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple)))
    return add_sequences(rt, a, b);
  if (op == Operator::kMultiply && repeatable(a) && b.is_integral())
    return repeat(rt, a, b.as_int());
  if (op == Operator::kMultiply && repeatable(b) && a.is_integral())
    return repeat(rt, b, a.as_int());
  rt.fail("unsupported operand types for ", symbol(op), ": '", a.type_name(), "' and '",
          b.type_name(), "'");
}

Value negate(Runtime& rt, const Value& value) {
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_real());
  if (!value.is_integral()) rt.fail("bad operand type for unary -: '", value.type_name(), "'");
  return integers(rt, Operator::kSubtract, 0, value.as_int());
}

Value identity(Runtime& rt, const Value& value) {
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is(Kind::kFloat)) return value;
  if (!value.is_integral()) rt.fail("bad operand type for unary +: '", value.type_name(), "'");
  return Value::integer(value.as_int());
}

}  // namespace tandem::runtime::jinja
