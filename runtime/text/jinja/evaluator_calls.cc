// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/evaluator_guards.h"

namespace tandem::runtime::jinja {
namespace {

/// Takes the argument called `name` out of `named`.
std::optional<Value> take(std::vector<std::pair<std::string, Value>>& named,
                          std::string_view name) {
  const auto found = std::find_if(named.begin(), named.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == named.end()) return std::nullopt;
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

}  // namespace

Value Evaluator::call_body(const Parameters& parameters, const Block& body, std::string_view name,
                           const ScopePtr& scope, const CallArguments& arguments) {
  const Runtime::Level level(rt_);
  const std::size_t count = parameters.names.size();
  auto named = arguments.named;
  std::vector<std::optional<Value>> given(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i < arguments.positional.size())
      given[i] = arguments.positional[i];
    else
      given[i] = take(named, parameters.names[i]);
  }
  auto inner = std::make_shared<Scope>(scope);
  if (parameters.uses_caller) {
    auto caller = take(named, "caller");
    inner->set("caller", caller ? *caller : Value::undefined("no caller is defined"));
  }
  if (parameters.uses_kwargs) {
    auto rest = std::make_shared<DictObject>();
    for (const auto& [key, value] : named) rest->set(Value::string(key), value);
    inner->set("kwargs", rt_.dict(std::move(rest)));
  } else if (!named.empty()) {
    rt_.fail("macro '", name, "' takes no argument named '", named[0].first, "'");
  }
  const bool extra = arguments.positional.size() > count;
  if (parameters.uses_varargs) {
    std::vector<Value> rest;
    if (extra)
      rest.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                  arguments.positional.end());
    inner->set("varargs", rt_.tuple(std::move(rest)));
  } else if (extra) {
    rt_.fail("macro '", name, "' takes not more than ", count, " arguments");
  }
  const ScopeChange change(*this, inner);
  Capture capture(*this);
  for (std::size_t i = 0; i < count; ++i) {  // a default may use the parameters before it
    const std::string& parameter = parameters.names[i];
    if (given[i])
      inner->set(parameter, std::move(*given[i]));
    else if (parameters.defaults[i])
      inner->set(parameter, evaluate(*parameters.defaults[i]));
    else
      inner->set(parameter,
                 Value::undefined(concat("parameter '", parameter, "' was not provided")));
  }
  execute(body);
  return capture.take();
}

}  // namespace tandem::runtime::jinja
