// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/evaluator.h"

#include "runtime/text/jinja/evaluator_guards.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/objects.h"
#include "runtime/text/jinja/text_format.h"

namespace tandem::runtime::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, slot] : names) {
    if (known != name) continue;
    slot = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

std::string Evaluator::run(const Block& block) {
  std::string text;
  out_ = &text;
  scope_ = std::make_shared<Scope>(nullptr);
  execute(block);
  return text;
}

void Evaluator::print(const Value& value) {
  if (value.is_string()) {
    rt_.charge(value.text().size());
    *out_ += value.text();
  } else {
    const std::string text = to_text(rt_, value);
    rt_.charge(text.size());
    *out_ += text;
  }
}

Evaluator::Flow Evaluator::execute(const Block& block) {
  const Runtime::Level level(rt_);
  for (const Statement& statement : block) {
    const Flow flow = execute(statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  rt_.step();
  rt_.at(statement.offset);
  switch (statement.kind) {
    case StatementKind::kText:
      rt_.charge(statement.text.size());
      *out_ += statement.text;
      break;
    case StatementKind::kPrint:
      for (const ExpressionPtr& expression : statement.expressions) print(evaluate(*expression));
      break;
    case StatementKind::kFor:
      return execute_for(statement, evaluate(*statement.expressions[0]), 0);
    case StatementKind::kIf:
      return execute_if(statement);
    case StatementKind::kSet:
      assign(statement.targets[0], evaluate(*statement.expressions[0]));
      break;
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
      return execute_filtered(statement);
    case StatementKind::kMacro:
      define_macro(statement);
      break;
    case StatementKind::kCallBlock:
      execute_call(statement);
      break;
    case StatementKind::kWith:
      return execute_with(statement);
    case StatementKind::kScope:
      return execute_scoped(statement.bodies[0], nullptr);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

// Runs `block` in a scope of its own; with `captured`, what it prints goes there.
Evaluator::Flow Evaluator::execute_scoped(const Block& block, Value* captured) {
  const ScopeChange change(*this, std::make_shared<Scope>(scope_));
  if (!captured) return execute(block);
  Capture capture(*this);
  const Flow flow = execute(block);
  *captured = capture.take();
  return flow;
}

Evaluator::Flow Evaluator::execute_if(const Statement& statement) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (truth(evaluate(*statement.expressions[i]))) return execute(statement.bodies[i]);
  return statement.bodies.size() > statement.expressions.size() ? execute(statement.bodies.back())
                                                                : Flow::kNormal;
}

Evaluator::Flow Evaluator::execute_for(const Statement& statement, const Value& iterable,
                                       int depth) {
  rt_.at(statement.expressions[0]->offset);
  const auto loop =
      std::make_shared<LoopObject>(*this, statement, scope_, iterate(rt_, iterable), depth);
  const Value loop_value = rt_.dynamic(loop);
  bool any = false;  // as in jinja2, an iteration left by break or continue does not count
  while (loop->advance(rt_)) {
    const ScopeChange change(*this, std::make_shared<Scope>(scope_));
    rt_.at(statement.offset);
    assign(statement.targets[0], loop->current());
    scope_->set("loop", loop_value);
    const Flow flow = execute(statement.bodies[0]);
    if (flow == Flow::kBreak) break;
    any |= flow == Flow::kNormal;
  }
  if (any || statement.bodies.size() < 2) return Flow::kNormal;
  return execute_scoped(statement.bodies[1], nullptr);
}

bool Evaluator::accepts(const Statement& loop, const Value& item, const ScopePtr& scope) {
  const ScopeChange change(*this, std::make_shared<Scope>(scope));
  rt_.at(loop.offset);
  assign(loop.targets[0], item);
  return truth(evaluate(*loop.expressions[1]));
}

Value Evaluator::call_loop(const Statement& loop, const Value& iterable, const ScopePtr& scope,
                           int depth) {
  const Runtime::Level level(rt_);
  const ScopeChange change(*this, scope);
  Capture capture(*this);
  execute_for(loop, iterable, depth);
  return capture.take();
}

Evaluator::Flow Evaluator::execute_filtered(const Statement& statement) {
  Value text;
  const Flow flow = execute_scoped(statement.bodies[0], &text);
  if (flow != Flow::kNormal) return flow;
  if (statement.expressions[0]) text = evaluate_filter(*statement.expressions[0], &text);
  if (statement.kind == StatementKind::kSetBlock)
    assign(statement.targets[0], std::move(text));
  else
    print(text);
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute_with(const Statement& statement) {
  auto inner = std::make_shared<Scope>(scope_);
  std::vector<Value> values;  // all are evaluated in the outer scope
  for (const ExpressionPtr& expression : statement.expressions)
    values.push_back(evaluate(*expression));
  const ScopeChange change(*this, std::move(inner));
  for (std::size_t i = 0; i < values.size(); ++i)
    assign(statement.targets[i], std::move(values[i]));
  return execute(statement.bodies[0]);
}

void Evaluator::define_macro(const Statement& statement) {
  const auto macro = std::make_shared<MacroObject>(*this, statement.parameters, statement.bodies[0],
                                                   statement.text, scope_);
  scope_->set(statement.text, rt_.dynamic(macro));
  // The scope holds the macro and the macro the scope.
  rt_.at_end([scope = scope_] { scope->names.clear(); });
}

void Evaluator::execute_call(const Statement& statement) {
  const Value caller = rt_.dynamic(std::make_shared<MacroObject>(
      *this, statement.parameters, statement.bodies[0], std::string_view(), scope_));
  print(evaluate_call(*statement.expressions[0], &caller));
}

void Evaluator::assign(const Target& target, Value value) {
  if (target.is_tuple) {
    const Items items = iterate(rt_, value);
    if (items->size() != target.items.size())
      rt_.fail(items->size() < target.items.size() ? "not enough" : "too many",
               " values to unpack (expected ", target.items.size(), ", got ", items->size(), ")");
    for (std::size_t i = 0; i < items->size(); ++i) assign(target.items[i], (*items)[i]);
  } else if (target.attribute.empty()) {
    scope_->set(target.name, std::move(value));
  } else {
    Expression name;
    name.name = target.name;
    name.offset = target.offset;
    const Value object = evaluate_name(name);
    auto* space =
        object.is(Kind::kDynamic) ? dynamic_cast<NamespaceObject*>(&object.dynamic()) : nullptr;
    if (!space)
      rt_.fail("cannot set '", target.name, ".", target.attribute, "': '", target.name,
               "' is not a namespace()");
    space->set(rt_, target.attribute, std::move(value));
  }
}

}  // namespace tandem::runtime::jinja
