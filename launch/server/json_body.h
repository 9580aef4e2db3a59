// SPDX-License-Identifier: Apache-2.0
// Typed reading of the fields of a request's JSON body. A missing or null field is absent; one of
// another type or range is an ApiError 400 that names it. References the object.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace tandem::launch {

class JsonBody {
 public:
  explicit JsonBody(const boost::json::object& object) : object_(object) {}

  /// Null when absent.
  const boost::json::value* find(const char* field) const;

  std::optional<bool> flag(const char* field) const;
  std::optional<std::int64_t> integer(
      const char* field, std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  std::optional<float> number(const char* field) const;
  std::optional<std::string> text(const char* field) const;
  const boost::json::array* list(const char* field) const;
  const boost::json::object* object(const char* field) const;

  [[noreturn]] static void wrong(const char* field, const std::string& expected);

 private:
  const boost::json::object& object_;
};

}  // namespace tandem::launch
