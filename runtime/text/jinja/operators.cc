// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/operators.h"

#include <algorithm>

#include "runtime/text/jinja/methods.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

// Exact for any pair of a 64-bit integer and a double: x86's long double holds both.
long double number(const Value& value) {
  return value.is(Kind::kFloat) ? static_cast<long double>(value.as_real())
                                : static_cast<long double>(value.as_int());
}

bool sequences_equal(Runtime& rt, const Value& a, const Value& b) {
  const auto& left = a.sequence().items;
  const auto& right = b.sequence().items;
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!equal(rt, left[i], right[i])) return false;
  return true;
}

bool dicts_equal(Runtime& rt, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (!other || !equal(rt, value, *other)) return false;
  }
  return true;
}

}  // namespace

void fail_undefined(Runtime& rt, const Value& undefined) {
  rt.fail(static_cast<const UndefinedObject&>(*undefined.shared()).message);
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return !value.sequence().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kIterator:
    case Kind::kDynamic:
      return true;
  }
  return true;
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  rt.step();
  if (a.is_number() && b.is_number()) return number(a) == number(b);
  if (a.kind() != b.kind()) return false;
  if (a.shared() && a.shared() == b.shared()) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      rt.step(a.text().size() / 256);
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return sequences_equal(rt, a, b);
    case Kind::kDict:
      return dicts_equal(rt, a.dict(), b.dict());
    default:
      return false;
  }
}

bool keys_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return number(a) == number(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kTuple:
      return std::equal(a.sequence().items.begin(), a.sequence().items.end(),
                        b.sequence().items.begin(), b.sequence().items.end(), keys_equal);
    default:
      return a.shared() == b.shared();
  }
}

void require_hashable(Runtime& rt, const Value& key) {
  rt.step();
  if (key.is(Kind::kList) || key.is(Kind::kDict))
    rt.fail("unhashable type: '", key.type_name(), "' cannot be a key");
  if (key.is(Kind::kTuple))
    for (const Value& item : key.sequence().items) require_hashable(rt, item);
}

bool less(Runtime& rt, const Value& a, const Value& b, std::string_view symbol) {
  rt.step();
  if (a.is_undefined()) fail_undefined(rt, a);
  if (b.is_undefined()) fail_undefined(rt, b);
  if (a.is_number() && b.is_number()) return number(a) < number(b);
  if (a.is_string() && b.is_string()) {
    rt.step(a.text().size() / 256);
    return a.text() < b.text();
  }
  const bool sequences = a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple));
  if (!sequences)
    rt.fail("'", symbol, "' is not defined between '", a.type_name(), "' and '", b.type_name(),
            "'");
  const auto& left = a.sequence().items;
  const auto& right = b.sequence().items;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i)
    if (!equal(rt, left[i], right[i])) return less(rt, left[i], right[i], symbol);
  return left.size() < right.size();
}

bool compare(Runtime& rt, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(rt, a, b);
    case Comparison::kNotEqual:
      return !equal(rt, a, b);
    case Comparison::kLess:
      return less(rt, a, b, "<");
    case Comparison::kGreater:
      return less(rt, b, a, ">");
    case Comparison::kLessEqual:
      return less(rt, a, b, "<=") || equal(rt, a, b);
    case Comparison::kGreaterEqual:
      return less(rt, b, a, ">=") || equal(rt, a, b);
    case Comparison::kIn:
      return contains(rt, b, a);
    case Comparison::kNotIn:
      return !contains(rt, b, a);
  }
  return false;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string())
      rt.fail("'in <string>' needs a string on its left, not '", item.type_name(), "'");
    return find_text(rt, container.text(), item.text(), 0) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    require_hashable(rt, item);
    return container.dict().find(item) != nullptr;
  }
  if (!iterable(container))
    rt.fail("argument of type '", container.type_name(), "' is not iterable");
  const Items items = iterate(rt, container);
  return std::any_of(items->begin(), items->end(), [&](const Value& candidate) {
    return candidate.same_as(item) || equal(rt, candidate, item);
  });
}

bool iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence_object() ||
         value.is(Kind::kDict);
}

Items iterate(Runtime& rt, const Value& value) {
  if (value.is_sequence_object()) {
    const SequenceObject& object = value.sequence();
    rt.step(object.items.size() / 16);
    const std::size_t read = object.read;
    if (value.is(Kind::kIterator)) object.read = object.items.size();
    if (read == 0) return Items(value.shared(), &object.items);
    return std::make_shared<std::vector<Value>>(
        object.items.begin() + static_cast<std::ptrdiff_t>(read), object.items.end());
  }
  auto items = std::make_shared<std::vector<Value>>();
  if (value.is_string()) {
    rt.charge(value.text().size() * sizeof(StringObject));
    for (std::string_view c : split_characters(value.text()))
      items->push_back(Value::string(std::string(c)));
  } else if (value.is(Kind::kDict)) {
    rt.charge(value.dict().entries.size() * sizeof(Value));
    for (const auto& entry : value.dict().entries) items->push_back(entry.first);
  } else if (!value.is_undefined()) {
    rt.fail("'", value.type_name(), "' object is not iterable");
  }
  return items;
}

std::int64_t length(Runtime& rt, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<std::int64_t>(count_characters(value.text()));
  if (value.is(Kind::kDict)) return static_cast<std::int64_t>(value.dict().entries.size());
  if (!value.is_sequence_object() || value.is(Kind::kIterator))
    rt.fail("object of type '", value.type_name(), "' has no length");
  return static_cast<std::int64_t>(value.sequence().items.size());
}

}  // namespace tandem::runtime::jinja
