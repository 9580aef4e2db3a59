// SPDX-License-Identifier: Apache-2.0
// Reading members: `a.b`, `a[b]`, `a[b:c]`, as jinja2's immutable sandbox does. A member that does
// not exist is an undefined value, not an error; what would change a list or dict is refused.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

/// a.name: Python's attribute first, then the item.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
/// a[key]: the item first, then the attribute.
Value get_item(Runtime& rt, const Value& object, const Value& key);
/// a[start:stop:step]; None means not given.
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                const Value& step);

/// A function of the language or a method of a value.
using Method = Value (*)(Runtime& rt, const Value& self, const CallArguments& arguments);
struct MethodEntry {
  std::string_view name;
  Method method;
};
Method find_string_method(std::string_view name);
Method find_dict_method(std::string_view name);
Method find_list_method(std::string_view name);  ///< Lists, tuples and ranges.

/// `method` with its `self`, as a value that can be called.
Value bind_method(Runtime& rt, std::string_view name, Method method, const Value& self);

}  // namespace tandem::runtime::jinja
