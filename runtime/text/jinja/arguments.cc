// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/arguments.h"

#include <algorithm>

#include "runtime/text/jinja/operators.h"

namespace tandem::runtime::jinja {

Bound::Bound(Runtime& rt, std::string_view function, const CallArguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required)
    : rt_(rt), function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size())
    rt.fail(function, " takes at most ", names_.size(), " arguments, ", arguments.positional.size(),
            " were given");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) rt.fail(function, " has no argument named '", name, "'");
    auto& slot = values_[static_cast<std::size_t>(found - names_.begin())];
    if (slot) rt.fail(function, " was given two values for '", name, "'");
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) rt.fail(function, " needs the argument '", names_[i], "'");
}

bool Bound::truth(std::size_t i, bool otherwise) const {
  return has(i) ? jinja::truth(*values_[i]) : otherwise;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (!values_[i]->is_integral())
    rt_.fail(function_, " needs an integer for '", names_[i], "', not ", values_[i]->type_name());
  return values_[i]->as_int();
}

std::string Bound::text(std::size_t i, std::string otherwise) const {
  if (!has(i)) return otherwise;
  if (!values_[i]->is_string())
    rt_.fail(function_, " needs a string for '", names_[i], "', not ", values_[i]->type_name());
  return values_[i]->text();
}

}  // namespace tandem::runtime::jinja
