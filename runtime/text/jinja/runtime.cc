// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/runtime.h"

#include <algorithm>

namespace tandem::runtime::jinja {

Runtime::~Runtime() {
  for (const auto& action : at_end_) action();
}

void Runtime::check_depth(const Object& object) const {
  if (object.depth > kMaxValueDepth)
    fail("a value nests more than ", kMaxValueDepth, " levels deep");
}

Value Runtime::string(std::string text, bool safe) {
  charge(text.size());
  return Value::string(std::move(text), safe);
}

Value Runtime::sequence(Kind kind, std::vector<Value> items, std::string label) {
  charge(items.size() * sizeof(Value));
  auto object = std::make_shared<SequenceObject>();
  for (const Value& item : items) object->depth = std::max(object->depth, 1 + item.depth());
  check_depth(*object);
  object->items = std::move(items);
  object->label = std::move(label);
  return Value::object(kind, std::move(object));
}

Value Runtime::dict(std::shared_ptr<DictObject> object) {
  step(object->entries.size());
  charge(object->entries.size() * 4 * sizeof(Value));
  check_depth(*object);
  return Value::object(Kind::kDict, std::move(object));
}

}  // namespace tandem::runtime::jinja
