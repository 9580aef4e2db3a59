// SPDX-License-Identifier: Apache-2.0
#include "launch/server/json_body.h"

#include <cmath>

#include "launch/server/api_error.h"

namespace tandem::launch {

void JsonBody::wrong(const char* field, const std::string& expected) {
  throw ApiError(400, std::string("`") + field + "` must be " + expected + ".", field);
}

const boost::json::value* JsonBody::find(const char* field) const {
  const boost::json::value* value = object_.if_contains(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> JsonBody::flag(const char* field) const {
  const auto* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) wrong(field, "true or false");
  return value->get_bool();
}

std::optional<std::int64_t> JsonBody::integer(const char* field, std::int64_t low,
                                              std::int64_t high) const {
  const auto* value = find(field);
  if (value == nullptr) return std::nullopt;
  boost::system::error_code error;
  const auto number = value->to_number<std::int64_t>(error);
  if (error || value->is_double()) wrong(field, "a whole number");
  if (number < low || number > high) {
    wrong(field, "from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

std::optional<float> JsonBody::number(const char* field) const {
  const auto* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong(field, "a number");
  const auto number = value->to_number<double>();
  if (!std::isfinite(static_cast<float>(number))) wrong(field, "a number of ordinary size");
  return static_cast<float>(number);
}

std::optional<std::string> JsonBody::text(const char* field) const {
  const auto* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(field, "a string");
  return std::string(value->get_string());
}

const boost::json::array* JsonBody::list(const char* field) const {
  const auto* value = find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong(field, "a list");
  return &value->get_array();
}

const boost::json::object* JsonBody::object(const char* field) const {
  const auto* value = find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) wrong(field, "an object");
  return &value->get_object();
}

}  // namespace tandem::launch
