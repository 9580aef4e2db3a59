// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/text_format.h"

namespace tandem::runtime::jinja {
namespace {

class FunctionObject : public DynamicObject {
 public:
  FunctionObject(std::string_view name, Method method) : name_(name), method_(method) {}
  std::string_view type_name() const override { return "function"; }
  std::string repr(Runtime&) const override { return concat("<function ", name_, ">"); }
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    if (name_ != "dict" || name != "fromkeys") return std::nullopt;
    return bind_method(rt, name, find_dict_method(name), Value());
  }
  Value call(Runtime& rt, const CallArguments& arguments) override {
    return method_(rt, Value(), arguments);
  }

 private:
  std::string_view name_;  // of the tree
  Method method_;
};

}  // namespace

Value Evaluator::evaluate(const Expression& node) {
  const Runtime::Level level(rt_);
  rt_.step();
  rt_.at(node.offset);
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return evaluate_name(node);
    case ExpressionKind::kTuple:
      return evaluate_items(node, Kind::kTuple);
    case ExpressionKind::kList:
      return evaluate_items(node, Kind::kList);
    case ExpressionKind::kDict:
      return evaluate_dict(node);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem:
      return evaluate_item(node);
    case ExpressionKind::kSlice:
      rt_.fail("a slice among several indices is not supported");
    case ExpressionKind::kCall:
      return evaluate_call(node, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(node, nullptr);
    case ExpressionKind::kTest:
      return evaluate_test(node);
    case ExpressionKind::kConditional:
      return evaluate_conditional(node);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
    case ExpressionKind::kNot:
      return evaluate_logic(node);
    case ExpressionKind::kUnary:
    case ExpressionKind::kBinary:
      return evaluate_binary(node);
    case ExpressionKind::kConcat:
      return evaluate_concat(node);
    case ExpressionKind::kCompare:
      return evaluate_compare(node);
  }
  return {};
}

Value Evaluator::evaluate_name(const Expression& node) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get())
    for (const auto& [name, value] : scope->names)
      if (name == node.name) return value;
  if (const Value* found = variables_.find(node.name)) return *found;
  if (const Method method = find_global(node.name))
    return rt_.dynamic(std::make_shared<FunctionObject>(node.name, method));
  return Value::undefined(concat("'", node.name, "' is undefined"));
}

Value Evaluator::evaluate_items(const Expression& node, Kind kind) {
  std::vector<Value> items;
  items.reserve(node.children.size());
  for (const ExpressionPtr& child : node.children) items.push_back(evaluate(*child));
  rt_.at(node.offset);
  return rt_.sequence(kind, std::move(items));
}

Value Evaluator::evaluate_dict(const Expression& node) {
  auto dict = std::make_shared<DictObject>();
  for (std::size_t i = 0; i < node.children.size(); i += 2) {
    const Value key = evaluate(*node.children[i]);
    require_hashable(rt_, key);
    dict->set(key, evaluate(*node.children[i + 1]));
  }
  rt_.at(node.offset);
  return rt_.dict(std::move(dict));
}

Value Evaluator::evaluate_item(const Expression& node) {
  const Value object = evaluate(*node.children[0]);
  if (node.kind == ExpressionKind::kAttribute) {
    rt_.at(node.offset);
    return get_attribute(rt_, object, node.name);
  }
  const Expression& index = *node.children[1];
  if (index.kind != ExpressionKind::kSlice) {
    const Value key = evaluate(index);
    rt_.at(node.offset);
    return get_item(rt_, object, key);
  }
  const Value start = evaluate_optional(index.children[0]);
  const Value stop = evaluate_optional(index.children[1]);
  const Value step = evaluate_optional(index.children[2]);
  rt_.at(node.offset);
  return get_slice(rt_, object, start, stop, step);
}

Value Evaluator::evaluate_conditional(const Expression& node) {
  if (truth(evaluate(*node.children[1]))) return evaluate(*node.children[0]);
  if (node.children[2]) return evaluate(*node.children[2]);
  return Value::undefined("the inline if-expression was false and has no else");
}

Value Evaluator::evaluate_concat(const Expression& node) {
  std::string text;
  for (const ExpressionPtr& child : node.children) {
    const std::string part = to_text(rt_, evaluate(*child));
    rt_.charge(part.size());
    text += part;
  }
  return rt_.string(std::move(text));
}

Value Evaluator::evaluate_compare(const Expression& node) {
  Value left = evaluate(*node.children[0]);
  for (std::size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = evaluate(*node.children[i + 1]);
    rt_.at(node.offset);
    if (!compare(rt_, node.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_binary(const Expression& node) {
  const Value left = evaluate(*node.children[0]);
  if (node.kind == ExpressionKind::kUnary) {
    rt_.at(node.offset);
    return node.op == Operator::kSubtract ? negate(rt_, left) : identity(rt_, left);
  }
  const Value right = evaluate(*node.children[1]);
  rt_.at(node.offset);
  return arithmetic(rt_, node.op, left, right);
}

Value Evaluator::evaluate_logic(const Expression& node) {
  Value left = evaluate(*node.children[0]);
  if (node.kind == ExpressionKind::kNot) return Value::boolean(!truth(left));
  const bool stop = truth(left) == (node.kind == ExpressionKind::kOr);
  return stop ? left : evaluate(*node.children[1]);
}

CallArguments Evaluator::evaluate_arguments(const Arguments& arguments, const Value* caller) {
  CallArguments out;
  for (const ExpressionPtr& argument : arguments.positional)
    out.positional.push_back(evaluate(*argument));
  for (const auto& [name, value] : arguments.named) out.named.emplace_back(name, evaluate(*value));
  if (caller) out.named.emplace_back("caller", *caller);
  if (arguments.star) {
    const Items items = iterate(rt_, evaluate(*arguments.star));
    rt_.charge(items->size() * sizeof(Value));
    out.positional.insert(out.positional.end(), items->begin(), items->end());
  }
  if (arguments.star_star) {
    const Value more = evaluate(*arguments.star_star);
    if (!more.is(Kind::kDict)) rt_.fail("what follows ** must be a dict, not ", more.type_name());
    for (const auto& [name, value] : more.dict().entries) {
      if (!name.is_string()) rt_.fail("the keys of what follows ** must be strings");
      out.named.emplace_back(name.text(), value);
    }
  }
  return out;
}

Value Evaluator::evaluate_call(const Expression& node, const Value* caller) {
  const Value callee = evaluate(*node.children[0]);
  const CallArguments arguments = evaluate_arguments(node.arguments, caller);
  rt_.at(node.children[0]->offset);
  if (callee.is_undefined()) fail_undefined(rt_, callee);
  if (!callee.is(Kind::kDynamic)) rt_.fail("'", callee.type_name(), "' object is not callable");
  return callee.dynamic().call(rt_, arguments);
}

Value Evaluator::evaluate_filter(const Expression& node, const Value* block_text) {
  const ExpressionPtr& child = node.children[0];
  Value value;
  if (!child)
    value = *block_text;
  else if (child->kind == ExpressionKind::kFilter)
    value = evaluate_filter(*child, block_text);
  else
    value = evaluate(*child);
  const CallArguments arguments = evaluate_arguments(node.arguments, nullptr);
  rt_.at(node.offset);
  return call_filter(rt_, node.name, value, arguments);
}

Value Evaluator::evaluate_test(const Expression& node) {
  const Value value = evaluate(*node.children[0]);
  const CallArguments arguments = evaluate_arguments(node.arguments, nullptr);
  rt_.at(node.offset);
  return Value::boolean(call_test(rt_, node.name, value, arguments));
}

}  // namespace tandem::runtime::jinja
