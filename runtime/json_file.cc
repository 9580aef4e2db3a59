// SPDX-License-Identifier: Apache-2.0
#include "runtime/json_file.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <fstream>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace json = boost::json;

json::object parse_json_object(std::string_view text, const std::string& where) {
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  TANDEM_REQUIRE(!error, where, " is not valid JSON (", error.message(), "): download it again");
  TANDEM_REQUIRE(value.is_object(), where, " must hold one JSON object: download it again");
  return std::move(value.get_object());
}

json::object read_json_object(const std::filesystem::path& file, std::int64_t max_bytes) {
  std::error_code error;
  TANDEM_REQUIRE(std::filesystem::is_regular_file(file, error), "there is no file ", file.string(),
                 ": check --model, it must be a complete Hugging Face folder");
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file, error));
  TANDEM_REQUIRE(!error && size <= max_bytes, file.string(), " is larger than the ", max_bytes,
                 " bytes that such a file can sensibly have: download it again");
  std::string text(static_cast<std::size_t>(size), '\0');
  std::ifstream in(file, std::ios::binary);
  TANDEM_REQUIRE(in.read(text.data(), size), "cannot read ", file.string(),
                 ": check its permissions");
  return parse_json_object(text, file.string());
}

const json::value* JsonFields::find(std::string_view key) const {
  const json::value* value = object_->if_contains(json::string_view(key.data(), key.size()));
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void JsonFields::wrong(std::string_view key, std::string_view expected) const {
  const json::value* value = find(key);
  std::string shown = value == nullptr ? "absent" : json::serialize(*value);
  if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
  throw ConfigError(concat(where_, ": \"", key, "\" must be ", expected, ", it is ", shown));
}

std::int64_t JsonFields::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const json::value* value = find(key);
  std::optional<std::int64_t> number;
  if (value != nullptr && value->is_int64()) number = value->get_int64();
  if (value != nullptr && value->is_double() && std::abs(value->get_double()) < 9e15 &&
      value->get_double() == std::floor(value->get_double()))
    number = static_cast<std::int64_t>(value->get_double());
  if (!number || *number < min || *number > max)
    wrong(key, concat("a whole number from ", min, " to ", max));
  return *number;
}

std::int64_t JsonFields::integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                                    std::int64_t fallback) const {
  return has(key) ? integer(key, min, max) : fallback;
}

double JsonFields::number(std::string_view key, double min, double max) const {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_number()) wrong(key, "a number");
  const double number = value->to_number<double>();
  if (!(number >= min && number <= max)) wrong(key, concat("a number from ", min, " to ", max));
  return number;
}

double JsonFields::number_or(std::string_view key, double min, double max, double fallback) const {
  return has(key) ? number(key, min, max) : fallback;
}

std::optional<double> JsonFields::number_if(std::string_view key, double min, double max) const {
  return has(key) ? std::optional(number(key, min, max)) : std::nullopt;
}

bool JsonFields::flag_or(std::string_view key, bool fallback) const {
  const json::value* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) wrong(key, "true or false");
  return value->get_bool();
}

std::string JsonFields::text(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_string()) wrong(key, "a text");
  return std::string(value->get_string());
}

std::string JsonFields::text_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}

const json::array* JsonFields::list(std::string_view key) const {
  const json::value* value = find(key);
  if (value != nullptr && !value->is_array()) wrong(key, "a list");
  return value == nullptr ? nullptr : &value->get_array();
}

const json::object* JsonFields::nested(std::string_view key) const {
  const json::value* value = find(key);
  if (value != nullptr && !value->is_object()) wrong(key, "an object");
  return value == nullptr ? nullptr : &value->get_object();
}

}  // namespace tandem::runtime
