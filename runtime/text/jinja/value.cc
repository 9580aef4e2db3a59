// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/value.h"

#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/runtime.h"

namespace tandem::runtime::jinja {

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = kind;
  value.object_ = std::move(object);
  return value;
}

Value Value::undefined(std::string message) {
  auto object = std::make_shared<UndefinedObject>();
  object->message = std::move(message);
  return Value::object(Kind::kUndefined, std::move(object));
}

Value Value::boolean(bool flag) {
  Value value;
  value.kind_ = Kind::kBool;
  value.scalar_.integer = flag ? 1 : 0;
  return value;
}

Value Value::integer(std::int64_t number) {
  Value value;
  value.kind_ = Kind::kInt;
  value.scalar_.integer = number;
  return value;
}

Value Value::real(double number) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.scalar_.real = number;
  return value;
}

Value Value::string(std::string text, bool safe) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  object->safe = safe;
  return Value::object(Kind::kString, std::move(object));
}

const SequenceObject& Value::sequence() const { return as<SequenceObject>(); }
const DictObject& Value::dict() const { return as<DictObject>(); }
DynamicObject& Value::dynamic() const { return static_cast<DynamicObject&>(*object_); }

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return is_safe() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kView:
    case Kind::kIterator:
      return sequence().label;
    case Kind::kDict:
      return "dict";
    case Kind::kDynamic:
      return dynamic().type_name();
  }
  return "object";
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (kind_ == Kind::kFloat) return scalar_.real == other.scalar_.real;
  return object_ ? object_ == other.object_ : scalar_.integer == other.scalar_.integer;
}

void DictObject::set(const Value& key, Value value) {
  depth = std::max({depth, 1 + key.depth(), 1 + value.depth()});
  if (const Value* found = find(key)) {
    const_cast<Value&>(*found) = std::move(value);  // this object is not const
    return;
  }
  if (key.is_string()) by_text_.emplace(key.text(), entries.size());
  entries.emplace_back(key, std::move(value));
}

const Value* DictObject::find(std::string_view key) const {
  const auto found = by_text_.find(std::string(key));
  return found == by_text_.end() ? nullptr : &entries[found->second].second;
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(key.text());
  for (const auto& [candidate, value] : entries)
    if (keys_equal(candidate, key)) return &value;
  return nullptr;
}

std::optional<Value> DynamicObject::attribute(Runtime&, std::string_view) { return std::nullopt; }

Value DynamicObject::call(Runtime& rt, const CallArguments&) {
  rt.fail("'", type_name(), "' object is not callable");
}

}  // namespace tandem::runtime::jinja
