// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/unicode.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;

template <bool (*Check)(const Value&)>
Value simple(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "this test", arguments, {});
  return Value::boolean(Check(value));
}

template <Comparison comparison>
Value comparing(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "this test", arguments, {"other"}, 1);
  return Value::boolean(compare(rt, comparison, value, bound.get(0)));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_int() == 1; }
bool is_false(const Value& value) { return value.is(Kind::kBool) && value.as_int() == 0; }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_escaped(const Value& value) { return value.is_safe(); }
bool is_iterable(const Value& value) { return iterable(value); }
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is(Kind::kDynamic) && value.dynamic().callable());
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::kDict) ||
         value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange);
}

// str.islower and str.isupper: at least one cased character and none of the other case.
template <bool upper>
Value all_of_case(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "this test", arguments, {});
  rt.read_text(value);
  const std::string text = to_text(rt, value);
  bool any = false;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (upper ? is_lower(c.value) : is_upper(c.value)) return Value::boolean(false);
    any |= upper ? is_upper(c.value) : is_lower(c.value);
    i += c.size;
  }
  return Value::boolean(any);
}

Value test_in(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "the test 'in'", arguments, {"seq"}, 1);
  return Value::boolean(contains(rt, bound.get(0), value));
}

Value test_same_as(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "the test 'sameas'", arguments, {"other"}, 1);
  return Value::boolean(value.same_as(bound.get(0)));
}

Value divisible(Runtime& rt, const Value& value, const Value& by, std::int64_t rest) {
  const Value remainder = arithmetic(rt, Operator::kModulo, value, by);
  return Value::boolean(equal(rt, remainder, Value::integer(rest)));
}

Value test_divisible_by(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "the test 'divisibleby'", arguments, {"num"}, 1);
  return divisible(rt, value, bound.get(0), 0);
}

template <std::int64_t rest>
Value test_parity(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "this test", arguments, {});
  return divisible(rt, value, Value::integer(2), rest);
}

Value test_filter(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "the test 'filter'", arguments, {});
  return Value::boolean(value.is_string() && find_filter(value.text()) != nullptr);
}

Value test_test(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Bound bound(rt, "the test 'test'", arguments, {});
  return Value::boolean(value.is_string() && find_test(value.text()) != nullptr);
}

constexpr MethodEntry kTests[] = {
    {"!=", comparing<Comparison::kNotEqual>},
    {"<", comparing<Comparison::kLess>},
    {"<=", comparing<Comparison::kLessEqual>},
    {"==", comparing<Comparison::kEqual>},
    {">", comparing<Comparison::kGreater>},
    {">=", comparing<Comparison::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", test_divisible_by},
    {"eq", comparing<Comparison::kEqual>},
    {"equalto", comparing<Comparison::kEqual>},
    {"escaped", simple<is_escaped>},
    {"even", test_parity<0>},
    {"false", simple<is_false>},
    {"filter", test_filter},
    {"float", simple<is_float>},
    {"ge", comparing<Comparison::kGreaterEqual>},
    {"greaterthan", comparing<Comparison::kGreater>},
    {"gt", comparing<Comparison::kGreater>},
    {"in", test_in},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", comparing<Comparison::kLessEqual>},
    {"lessthan", comparing<Comparison::kLess>},
    {"lower", all_of_case<false>},
    {"lt", comparing<Comparison::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", comparing<Comparison::kNotEqual>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", test_parity<1>},
    {"sameas", test_same_as},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", test_test},
    {"true", simple<is_true>},
    {"undefined", simple<is_undefined>},
    {"upper", all_of_case<true>},
};

}  // namespace

Method find_test(std::string_view name) { return find_in(kTests, name); }

}  // namespace tandem::runtime::jinja
