// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/filters.h"

#include "runtime/text/jinja/operators.h"

namespace tandem::runtime::jinja {

Method find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_sequence_filter, find_selection_filter, find_number_filter})
    if (const Method method = find(name)) return method;
  return nullptr;
}

Value call_filter(Runtime& rt, std::string_view name, const Value& value,
                  const CallArguments& arguments) {
  const Method method = find_filter(name);
  if (!method) rt.fail("there is no filter named '", name, "'");
  rt.read_text(value);
  return method(rt, value, arguments);
}

bool call_test(Runtime& rt, std::string_view name, const Value& value,
               const CallArguments& arguments) {
  const Method method = find_test(name);
  if (!method) rt.fail("there is no test named '", name, "'");
  return truth(method(rt, value, arguments));
}

}  // namespace tandem::runtime::jinja
