// SPDX-License-Identifier: Apache-2.0
// Binds a call's arguments to a function's parameters by position or name, as Python does, and
// reads them as C++ types. One Bound serves one call.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

class Bound {
 public:
  /// Fails on too many, unknown or doubled arguments, and when one of the first `required` is
  /// missing.
  Bound(Runtime& rt, std::string_view function, const CallArguments& arguments,
        std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  /// Given and not None.
  bool set(std::size_t i) const { return has(i) && !values_[i]->is_none(); }
  Value get(std::size_t i, Value otherwise = {}) const {
    return has(i) ? *values_[i] : std::move(otherwise);
  }
  bool truth(std::size_t i, bool otherwise) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  std::string text(std::size_t i, std::string otherwise) const;  ///< Must be a str.

 private:
  Runtime& rt_;
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace tandem::runtime::jinja
