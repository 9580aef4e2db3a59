// SPDX-License-Identifier: Apache-2.0
// Values with behaviour that templates see: namespaces, macros and loops. Owned by the values that
// name them; valid for the render that made them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

class NamespaceObject : public DynamicObject {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::string repr(Runtime& rt) const override;
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override;
  bool callable() const override { return false; }
  /// Refuses names that begin with an underscore.
  void set(Runtime& rt, std::string_view name, Value value);
  void clear() { attributes_ = {}; }

 private:
  DictObject attributes_;
};

class MacroObject : public DynamicObject {
 public:
  MacroObject(Evaluator& evaluator, const Parameters& parameters, const Block& body,
              std::string_view macro_name, ScopePtr scope)
      : evaluator_(evaluator),
        parameters_(parameters),
        body_(body),
        name_(macro_name),
        scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string repr(Runtime& rt) const override;
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override;
  Value call(Runtime& rt, const CallArguments& arguments) override;

 private:
  Evaluator& evaluator_;
  const Parameters& parameters_;
  const Block& body_;
  std::string_view name_;  // empty: a call block's caller
  ScopePtr scope_;
};

/// `loop` inside a for block, and the iteration itself. Items of a filtered loop are tested only
/// when they are reached or peeked at, as jinja2 does.
class LoopObject : public DynamicObject, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(Evaluator& evaluator, const Statement& loop, ScopePtr scope, Items items, int level);
  /// Moves to the next item; false at the end.
  bool advance(Runtime& rt);
  const Value& current() const { return current_; }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr(Runtime& rt) const override;
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override;
  Value call(Runtime& rt, const CallArguments& arguments) override;
  Value cycle(Runtime& rt, const CallArguments& arguments) const;
  Value changed(Runtime& rt, const CallArguments& arguments);

 private:
  std::optional<Value> pull();
  bool peek();
  std::int64_t length();

  Evaluator& evaluator_;
  const Statement& loop_;
  ScopePtr scope_;
  Items items_;
  std::size_t next_ = 0;
  bool filtered_;
  int level_;
  std::int64_t index_ = -1;
  Value current_;
  std::optional<Value> before_, after_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace tandem::runtime::jinja
