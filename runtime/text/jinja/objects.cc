// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/objects.h"

#include <algorithm>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/text_format.h"

namespace tandem::runtime::jinja {
namespace {

Value loop_cycle(Runtime& rt, const Value& self, const CallArguments& arguments) {
  return static_cast<LoopObject&>(self.dynamic()).cycle(rt, arguments);
}

Value loop_changed(Runtime& rt, const Value& self, const CallArguments& arguments) {
  return static_cast<LoopObject&>(self.dynamic()).changed(rt, arguments);
}

}  // namespace

std::string NamespaceObject::repr(Runtime& rt) const {
  const Runtime::Level level(rt);
  std::string out = "<Namespace {";
  for (const auto& [name, value] : attributes_.entries) {
    if (out.back() != '{') out += ", ";
    append_repr(rt, out, name);
    out += ": ";
    append_repr(rt, out, value);
  }
  return out + "}>";
}

std::optional<Value> NamespaceObject::attribute(Runtime&, std::string_view name) {
  const Value* found = attributes_.find(name);
  return found ? std::optional(*found) : std::nullopt;
}

void NamespaceObject::set(Runtime& rt, std::string_view name, Value value) {
  if (name.starts_with("_"))
    rt.fail("a namespace cannot have the attribute '", name,
            "': names that begin with an underscore are reserved");
  attributes_.set(Value::string(std::string(name)), std::move(value));
}

std::string MacroObject::repr(Runtime&) const {
  return name_.empty() ? "<Macro anonymous>" : concat("<Macro '", name_, "'>");
}

std::optional<Value> MacroObject::attribute(Runtime& rt, std::string_view name) {
  if (name == "name") return name_.empty() ? Value() : rt.string(std::string(name_));
  if (name == "catch_kwargs") return Value::boolean(parameters_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(parameters_.uses_varargs);
  if (name == "caller") return Value::boolean(parameters_.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const std::string& parameter : parameters_.names) names.push_back(rt.string(parameter));
  return rt.tuple(std::move(names));
}

Value MacroObject::call(Runtime&, const CallArguments& arguments) {
  return evaluator_.call_body(parameters_, body_, name_, scope_, arguments);
}

LoopObject::LoopObject(Evaluator& evaluator, const Statement& loop, ScopePtr scope, Items items,
                       int level)
    : evaluator_(evaluator),
      loop_(loop),
      scope_(std::move(scope)),
      items_(std::move(items)),
      filtered_(loop.expressions[1] != nullptr),
      level_(level) {
  for (const Value& item : *items_) depth = std::max(depth, 1 + item.depth());
}

std::optional<Value> LoopObject::pull() {
  while (next_ < items_->size()) {
    const Value& item = (*items_)[next_++];
    if (!filtered_ || evaluator_.accepts(loop_, item, scope_)) return item;
  }
  return std::nullopt;
}

bool LoopObject::peek() {
  if (!after_) after_ = pull();
  return after_.has_value();
}

bool LoopObject::advance(Runtime& rt) {
  rt.step();
  std::optional<Value> item = std::exchange(after_, std::nullopt);
  if (!item) item = pull();
  if (!item) return false;
  if (index_ >= 0) before_ = std::move(current_);
  ++index_;
  current_ = std::move(*item);
  return true;
}

std::int64_t LoopObject::length() {
  if (filtered_) {  // take the rest at once, as Python does for what has no len()
    auto rest = std::make_shared<std::vector<Value>>();
    while (auto item = pull()) rest->push_back(std::move(*item));
    const std::int64_t seen = index_ + 1 + (after_ ? 1 : 0);
    auto items = std::make_shared<std::vector<Value>>(static_cast<std::size_t>(seen));
    items->insert(items->end(), rest->begin(), rest->end());
    items_ = std::move(items);
    next_ = static_cast<std::size_t>(seen);
    filtered_ = false;
  }
  return static_cast<std::int64_t>(items_->size());
}

std::string LoopObject::repr(Runtime&) const {
  return concat("<LoopContext ", index_ + 1, "/", const_cast<LoopObject*>(this)->length(), ">");
}

std::optional<Value> LoopObject::attribute(Runtime& rt, std::string_view name) {
  if (name == "index0") return Value::integer(index_);
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index_);
  if (name == "revindex0") return Value::integer(length() - index_ - 1);
  if (name == "depth0") return Value::integer(level_);
  if (name == "depth") return Value::integer(level_ + 1);
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *after_ : Value::undefined("there is no next item");
  const Value self = Value::object(Kind::kDynamic, shared_from_this());
  if (name == "cycle") return bind_method(rt, "cycle", loop_cycle, self);
  if (name == "changed") return bind_method(rt, "changed", loop_changed, self);
  return std::nullopt;
}

Value LoopObject::cycle(Runtime& rt, const CallArguments& arguments) const {
  const auto& choices = arguments.positional;
  if (choices.empty()) rt.fail("loop.cycle needs something to cycle through");
  return choices[static_cast<std::size_t>(index_) % choices.size()];
}

Value LoopObject::changed(Runtime& rt, const CallArguments& arguments) {
  const auto& now = arguments.positional;
  const bool same = last_changed_ &&
                    std::equal(now.begin(), now.end(), last_changed_->begin(), last_changed_->end(),
                               [&](const Value& a, const Value& b) { return equal(rt, a, b); });
  last_changed_ = now;
  return Value::boolean(!same);
}

Value LoopObject::call(Runtime& rt, const CallArguments& arguments) {
  if (!loop_.recursive)
    rt.fail("loop(...) needs a loop marked 'recursive': {% for x in y recursive %}");
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    rt.fail("loop(...) takes one iterable");
  return evaluator_.call_loop(loop_, arguments.positional[0], scope_, level_ + 1);
}

}  // namespace tandem::runtime::jinja
