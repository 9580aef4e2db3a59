// SPDX-License-Identifier: Apache-2.0
// The filters and tests of jinja2 (`value | name(...)`, `value is name(...)`), with `tojson` as
// `transformers` defines it, and the global functions. Stateless: fixed tables.
#pragma once

#include <string_view>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

Method find_filter(std::string_view name);  ///< null: there is none
Method find_test(std::string_view name);    ///< null: there is none; returns a bool value
Method find_global(std::string_view name);  ///< range, dict, namespace, raise_exception, ...

/// Fails with the nearest names when the filter or test does not exist.
Value call_filter(Runtime& rt, std::string_view name, const Value& value,
                  const CallArguments& arguments);
bool call_test(Runtime& rt, std::string_view name, const Value& value,
               const CallArguments& arguments);

// Parts of the tables, by topic.
Method find_text_filter(std::string_view name);
Method find_sequence_filter(std::string_view name);
Method find_selection_filter(std::string_view name);
Method find_number_filter(std::string_view name);

template <std::size_t N>
Method find_in(const MethodEntry (&table)[N], std::string_view name) {
  for (const MethodEntry& entry : table)
    if (entry.name == name) return entry.method;
  return nullptr;
}

}  // namespace tandem::runtime::jinja
