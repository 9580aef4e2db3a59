// SPDX-License-Identifier: Apache-2.0
#include <ctime>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/objects.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/text_format.h"

namespace tandem::runtime::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100000;  // jinja2's sandbox has the same limit

Value make_range(Runtime& rt, const Value&, const CallArguments& arguments) {
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty())
    rt.fail("range takes one to three integers");
  for (const Value& value : arguments.positional)
    if (!value.is_integral()) rt.fail("range takes integers, not ", value.type_name());
  const auto number = [&](std::size_t i) { return arguments.positional[i].as_int(); };
  const std::int64_t start = count > 1 ? number(0) : 0;
  const std::int64_t stop = number(count > 1 ? 1 : 0);
  const std::int64_t step = count > 2 ? number(2) : 1;
  if (step == 0) rt.fail("the step of range must not be zero");
  std::vector<Value> items;
  std::int64_t i = start;
  while (step > 0 ? i < stop : i > stop) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange)
      rt.fail("a range may have at most ", kMaxRange, " items");
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  std::string label = concat("range(", start, ", ", stop);
  if (step != 1) label += concat(", ", step);
  return rt.sequence(Kind::kRange, std::move(items), label + ")");
}

// The arguments of dict() and namespace(): a mapping or pairs, then named ones.
template <typename Set>
void read_members(Runtime& rt, std::string_view function, const CallArguments& arguments, Set set) {
  if (arguments.positional.size() > 1) rt.fail(function, " takes at most one positional argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Kind::kDict)) {
      for (const auto& [key, value] : from.dict().entries) set(key, value);
    } else {
      const Items pairs = iterate(rt, from);
      for (const Value& pair : *pairs) {
        const Items items = iterate(rt, pair);
        if (items->size() != 2) rt.fail(function, " needs pairs of a key and a value");
        require_hashable(rt, (*items)[0]);
        set((*items)[0], (*items)[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set(rt.string(name), value);
}

Value make_dict(Runtime& rt, const Value&, const CallArguments& arguments) {
  auto dict = std::make_shared<DictObject>();
  read_members(rt, "dict", arguments,
               [&](const Value& key, const Value& value) { dict->set(key, value); });
  return rt.dict(std::move(dict));
}

Value make_namespace(Runtime& rt, const Value&, const CallArguments& arguments) {
  auto space = std::make_shared<NamespaceObject>();
  rt.at_end([space] { space->clear(); });
  read_members(rt, "namespace", arguments, [&](const Value& key, const Value& value) {
    if (!key.is_string()) rt.fail("the names of a namespace must be strings");
    space->set(rt, key.text(), value);
  });
  return rt.dynamic(std::move(space));
}

Value raise_exception(Runtime& rt, const Value&, const CallArguments& arguments) {
  const Bound bound(rt, "raise_exception", arguments, {"message"}, 1);
  rt.fail(to_text(rt, bound.get(0)));
}

Value strftime_now(Runtime& rt, const Value&, const CallArguments& arguments) {
  const Bound bound(rt, "strftime_now", arguments, {"format"}, 1);
  const std::string format = bound.text(0, "");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  if (format.empty()) return rt.string("");
  if (format.size() > 1000) rt.fail("the format of strftime_now is longer than 1000 bytes");
  // A leading character tells an empty result from one that does not fit.
  std::string text(64 * format.size() + 256, '\0');
  text.resize(std::strftime(text.data(), text.size(), ("x" + format).c_str(), &local));
  return rt.string(text.empty() ? "" : text.substr(1));
}

class Cycler : public DynamicObject, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {
    for (const Value& item : items_) depth = std::max(depth, 1 + item.depth());
  }
  std::string_view type_name() const override { return "Cycler"; }
  std::string repr(Runtime&) const override { return "<Cycler object>"; }
  bool callable() const override { return false; }
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override;
  Value next() { return items_[std::exchange(at_, (at_ + 1) % items_.size())]; }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

std::optional<Value> Cycler::attribute(Runtime& rt, std::string_view name) {
  const Value self = Value::object(Kind::kDynamic, shared_from_this());
  if (name == "current") return items_[at_];
  if (name == "next")
    return bind_method(
        rt, "next",
        [](Runtime&, const Value& cycler, const CallArguments&) {
          return static_cast<Cycler&>(cycler.dynamic()).next();
        },
        self);
  if (name == "reset")
    return bind_method(
        rt, "reset",
        [](Runtime&, const Value& cycler, const CallArguments&) {
          static_cast<Cycler&>(cycler.dynamic()).reset();
          return Value();
        },
        self);
  return std::nullopt;
}

Value make_cycler(Runtime& rt, const Value&, const CallArguments& arguments) {
  if (arguments.positional.empty()) rt.fail("cycler needs at least one item");
  return rt.dynamic(std::make_shared<Cycler>(arguments.positional));
}

/// Prints nothing the first time it is called, then its separator.
class Joiner : public DynamicObject {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {
    depth = 1 + separator_.depth();
  }
  std::string_view type_name() const override { return "Joiner"; }
  std::string repr(Runtime&) const override { return "<Joiner object>"; }
  Value call(Runtime& rt, const CallArguments&) override {
    return std::exchange(used_, true) ? separator_ : rt.string("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(Runtime& rt, const Value&, const CallArguments& arguments) {
  const Bound bound(rt, "joiner", arguments, {"sep"});
  return rt.dynamic(std::make_shared<Joiner>(bound.get(0, rt.string(", "))));
}

constexpr MethodEntry kGlobals[] = {
    {"cycler", make_cycler},
    {"dict", make_dict},
    {"joiner", make_joiner},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", make_range},
    {"strftime_now", strftime_now},
};

}  // namespace

Method find_global(std::string_view name) { return find_in(kGlobals, name); }

}  // namespace tandem::runtime::jinja
