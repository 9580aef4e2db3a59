// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/access.h"

#include <algorithm>

#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {
namespace {

class BoundMethod : public DynamicObject {
 public:
  BoundMethod(std::string_view name, Method method, Value self)
      : name_(name), method_(method), self_(std::move(self)) {
    depth = 1 + self_.depth();
  }
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Runtime&) const override {
    return concat("<built-in method ", name_, " of ", self_.type_name(), " object>");
  }
  Value call(Runtime& rt, const CallArguments& arguments) override {
    rt.read_text(self_);
    return method_(rt, self_, arguments);
  }

 private:
  std::string name_;
  Method method_;
  Value self_;
};

std::string object_name(const Value& object) {
  return object.is_none() ? "None" : concat(object.type_name(), " object");
}

bool changes_its_object(const Value& object, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                        "pop",    "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return object.is(Kind::kList) ? among(kList) : object.is(Kind::kDict) && among(kDict);
}

std::optional<Value> find_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Kind::kDynamic)) return object.dynamic().attribute(rt, name);
  if (changes_its_object(object, name))
    return Value::undefined(concat("'", name, "' of a ", object.type_name(),
                                   " would change it, which templates may not do"));
  if (object.is(Kind::kTuple) && object.sequence().label == "group") {  // what groupby gives
    if (name == "grouper") return object.sequence().items[0];
    if (name == "list") return object.sequence().items[1];
  }
  Method method = nullptr;
  if (object.is_string()) method = find_string_method(name);
  if (object.is(Kind::kDict)) method = find_dict_method(name);
  if (object.is(Kind::kList) || object.is(Kind::kTuple) || object.is(Kind::kRange))
    method = find_list_method(name);
  if (!method) return std::nullopt;
  return bind_method(rt, name, method, object);
}

std::optional<Value> find_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
    const Value* found = object.dict().find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  const bool indexed = object.is(Kind::kList) || object.is(Kind::kTuple) ||
                       object.is(Kind::kRange) || object.is_string();
  if (!indexed || !key.is_integral()) return std::nullopt;
  const std::int64_t size = length(rt, object);
  const std::int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  if (!object.is_string()) return object.sequence().items[at];
  rt.read_text(object);
  const std::size_t begin = byte_offset(object.text(), at);
  return rt.string(object.text().substr(begin, decode_at(object.text(), begin).size),
                   object.is_safe());
}

struct SliceBounds {
  std::int64_t start, stop, step;
};

// As Python's slice.indices().
SliceBounds resolve(Runtime& rt, std::int64_t size, const Value& start, const Value& stop,
                    const Value& step) {
  const auto number = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    if (!value.is_integral())
      rt.fail("slice indices must be integers or None, not ", value.type_name());
    return value.as_int();
  };
  SliceBounds bounds{};
  bounds.step = number(step, 1);
  if (bounds.step == 0) rt.fail("slice step cannot be zero");
  const bool down = bounds.step < 0;
  const std::int64_t low = down ? -1 : 0, high = down ? size - 1 : size;
  const auto clamp = [&](std::int64_t value) {
    return value < 0 ? std::max(low, value + size) : std::min(high, value);
  };
  bounds.start = start.is_none() ? (down ? high : low) : clamp(number(start, 0));
  bounds.stop = stop.is_none() ? (down ? low : high) : clamp(number(stop, 0));
  return bounds;
}

template <typename Take>
void walk(const SliceBounds& bounds, Take take) {
  std::int64_t i = bounds.start;
  while (bounds.step > 0 ? i < bounds.stop : i > bounds.stop) {
    take(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, bounds.step, &i)) return;
  }
}

}  // namespace

Value bind_method(Runtime& rt, std::string_view name, Method method, const Value& self) {
  return rt.dynamic(std::make_shared<BoundMethod>(name, method, self));
}

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(rt, object);
  if (auto found = find_attribute(rt, object, name)) return *found;
  if (object.is(Kind::kDict))
    if (const Value* found = object.dict().find(name)) return *found;
  return Value::undefined(concat("'", object_name(object), "' has no attribute '", name, "'"));
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(rt, object);
  if (auto found = find_item(rt, object, key)) return *found;
  if (key.is_string()) {
    if (auto found = find_attribute(rt, object, key.text())) return *found;
    return Value::undefined(
        concat("'", object_name(object), "' has no attribute '", key.text(), "'"));
  }
  return Value::undefined(concat(object_name(object), " has no element ", repr(rt, key)));
}

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) fail_undefined(rt, object);
  if (object.is_string()) {
    rt.charge(object.text().size());
    const auto characters = split_characters(object.text());
    std::string out;
    walk(resolve(rt, static_cast<std::int64_t>(characters.size()), start, stop, step),
         [&](std::size_t i) { out += characters[i]; });
    return rt.string(std::move(out), object.is_safe());
  }
  if (!object.is(Kind::kList) && !object.is(Kind::kTuple) && !object.is(Kind::kRange))
    rt.fail("'", object.type_name(), "' object cannot be sliced");
  const auto& items = object.sequence().items;
  std::vector<Value> out;
  walk(resolve(rt, static_cast<std::int64_t>(items.size()), start, stop, step),
       [&](std::size_t i) { out.push_back(items[i]); });
  return rt.sequence(object.is(Kind::kRange) ? Kind::kList : object.kind(), std::move(out));
}

}  // namespace tandem::runtime::jinja
