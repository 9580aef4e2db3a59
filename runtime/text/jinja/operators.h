// SPDX-License-Identifier: Apache-2.0
// Python's operators on template values: truth, equality, order, membership, arithmetic, length
// and iteration. What Python refuses with a TypeError fails with the place in the template.
#pragma once

#include <memory>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

using Items = std::shared_ptr<const std::vector<Value>>;

bool truth(const Value& value);
bool equal(Runtime& rt, const Value& a, const Value& b);
/// Equality of dict keys (scalars and tuples); needs no budget because keys are shallow.
bool keys_equal(const Value& a, const Value& b);
void require_hashable(Runtime& rt, const Value& key);
/// a < b as Python orders them; fails for types that have no order.
bool less(Runtime& rt, const Value& a, const Value& b, std::string_view symbol = "<");
bool compare(Runtime& rt, Comparison comparison, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);

Value arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
/// Unary plus.
Value identity(Runtime& rt, const Value& value);
/// `count` copies of a text or list, one after another.
Value repeat(Runtime& rt, const Value& value, std::int64_t count);

/// Everything `value` yields, in order; uses up iterators. Fails when it cannot be iterated.
Items iterate(Runtime& rt, const Value& value);
bool iterable(const Value& value);
/// Python's len(); fails when there is none.
std::int64_t length(Runtime& rt, const Value& value);
[[noreturn]] void fail_undefined(Runtime& rt, const Value& undefined);

}  // namespace tandem::runtime::jinja
