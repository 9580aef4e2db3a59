// SPDX-License-Identifier: Apache-2.0
// Runs a parsed template: scopes, statements, expressions, macros and loops. One Evaluator makes
// one render on one thread. Scoping follows jinja2: loops, macros and blocks have a scope of their
// own, `if` has none, names are found through the enclosing scopes, then the variables, then the
// global functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  void set(std::string_view name, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> names;  ///< Names live in the tree.
};
using ScopePtr = std::shared_ptr<Scope>;

class LoopObject;

class Evaluator {
 public:
  Evaluator(Runtime& rt, const DictObject& variables) : rt_(rt), variables_(variables) {}
  std::string run(const Block& block);

  /// Calls a macro's or caller's body with bound arguments; returns what it prints.
  Value call_body(const Parameters& parameters, const Block& body, std::string_view name,
                  const ScopePtr& scope, const CallArguments& arguments);
  /// Runs a loop over `iterable` and returns what it prints: `loop(...)` of recursive loops.
  Value call_loop(const Statement& loop, const Value& iterable, const ScopePtr& scope, int depth);
  /// The condition of a filtered loop for one item.
  bool accepts(const Statement& loop, const Value& item, const ScopePtr& scope);

 private:
  enum class Flow : std::uint8_t { kNormal, kBreak, kContinue };
  class ScopeChange;
  class Capture;

  // Statements.
  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_scoped(const Block& block, Value* captured);
  Flow execute_if(const Statement& statement);
  Flow execute_for(const Statement& statement, const Value& iterable, int depth);
  Flow execute_filtered(const Statement& statement);
  Flow execute_with(const Statement& statement);
  void execute_call(const Statement& statement);
  void define_macro(const Statement& statement);
  void assign(const Target& target, Value value);
  void print(const Value& value);

  // Expressions.
  Value evaluate(const Expression& node);
  Value evaluate_optional(const ExpressionPtr& node) { return node ? evaluate(*node) : Value(); }
  Value evaluate_name(const Expression& node);
  Value evaluate_items(const Expression& node, Kind kind);
  Value evaluate_dict(const Expression& node);
  Value evaluate_item(const Expression& node);
  Value evaluate_conditional(const Expression& node);
  Value evaluate_concat(const Expression& node);
  Value evaluate_compare(const Expression& node);
  Value evaluate_binary(const Expression& node);
  Value evaluate_logic(const Expression& node);
  Value evaluate_call(const Expression& node, const Value* caller);
  Value evaluate_filter(const Expression& node, const Value* block_text);
  Value evaluate_test(const Expression& node);
  CallArguments evaluate_arguments(const Arguments& arguments, const Value* caller);

  Runtime& rt_;
  const DictObject& variables_;
  ScopePtr scope_;
  std::string* out_ = nullptr;
};

}  // namespace tandem::runtime::jinja
