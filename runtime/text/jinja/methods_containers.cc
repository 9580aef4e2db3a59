// SPDX-License-Identifier: Apache-2.0
// Methods of dict, list, tuple and range that do not change them.
#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/operators.h"

namespace tandem::runtime::jinja {
namespace {

using Arguments = CallArguments;

Value dict_get(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "get", arguments, {"key", "default"}, 1);
  require_hashable(rt, bound.get(0));
  const Value* found = self.dict().find(bound.get(0));
  return found ? *found : bound.get(1);
}

Value dict_items(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "items", arguments, {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict().entries) out.push_back(rt.tuple({key, value}));
  return rt.sequence(Kind::kView, std::move(out), "dict_items");
}

Value dict_keys(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "keys", arguments, {});
  std::vector<Value> out;
  for (const auto& entry : self.dict().entries) out.push_back(entry.first);
  return rt.sequence(Kind::kView, std::move(out), "dict_keys");
}

Value dict_values(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "values", arguments, {});
  std::vector<Value> out;
  for (const auto& entry : self.dict().entries) out.push_back(entry.second);
  return rt.sequence(Kind::kView, std::move(out), "dict_values");
}

// Values cannot change, so a copy is the value itself.
Value copy(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "copy", arguments, {});
  return self;
}

Value dict_from_keys(Runtime& rt, const Value&, const Arguments& arguments) {
  const Bound bound(rt, "fromkeys", arguments, {"keys", "value"}, 1);
  auto dict = std::make_shared<DictObject>();
  const Items items = iterate(rt, bound.get(0));
  for (const Value& key : *items) {
    require_hashable(rt, key);
    dict->set(key, bound.get(1));
  }
  return rt.dict(std::move(dict));
}

Value sequence_count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "count", arguments, {"value"}, 1);
  const Value wanted = bound.get(0);
  const auto& items = self.sequence().items;
  return Value::integer(std::count_if(items.begin(), items.end(),
                                      [&](const Value& item) { return equal(rt, item, wanted); }));
}

Value sequence_index(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, "index", arguments, {"value", "start", "stop"}, 1);
  const Value wanted = bound.get(0);
  const auto& items = self.sequence().items;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto clamp = [&](std::int64_t i) {
    return std::min(size, i < 0 ? std::max<std::int64_t>(0, i + size) : i);
  };
  for (std::int64_t i = clamp(bound.integer(1, 0)); i < clamp(bound.integer(2, size)); ++i)
    if (equal(rt, items[static_cast<std::size_t>(i)], wanted)) return Value::integer(i);
  rt.fail("index: the value is not in the list");
}

constexpr MethodEntry kDictMethods[] = {
    {"copy", copy},        {"fromkeys", dict_from_keys}, {"get", dict_get},
    {"items", dict_items}, {"keys", dict_keys},          {"values", dict_values},
};

constexpr MethodEntry kListMethods[] = {
    {"copy", copy},
    {"count", sequence_count},
    {"index", sequence_index},
};

}  // namespace

Method find_dict_method(std::string_view name) { return find_in(kDictMethods, name); }
Method find_list_method(std::string_view name) { return find_in(kListMethods, name); }

}  // namespace tandem::runtime::jinja
