// SPDX-License-Identifier: Apache-2.0
// JSON files of a model read with errors that a person can act on: every fault is a ConfigError
// that names the file, the key and what was expected. Nothing here trusts the file: sizes, depths
// and number ranges are bounded. Plain values; thread-safe.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::runtime {

/// Parses `text`; `where` names it in errors. Must hold one JSON object.
boost::json::object parse_json_object(std::string_view text, const std::string& where);

/// Reads and parses a file of at most `max_bytes`.
boost::json::object read_json_object(const std::filesystem::path& file,
                                     std::int64_t max_bytes = 64 << 20);

/// Typed access to one JSON object. A key whose value is null counts as absent.
class JsonFields {
 public:
  /// `object` is referenced, not copied. `where` names it in errors ("folder/config.json").
  JsonFields(const boost::json::object& object, std::string where)
      : object_(&object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const boost::json::value* find(std::string_view key) const;  ///< Null when absent.
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// A whole number in [min, max]; ConfigError when absent (without `fallback`) or wrong.
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::int64_t integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                          std::int64_t fallback) const;
  /// A finite number in [min, max].
  double number(std::string_view key, double min, double max) const;
  double number_or(std::string_view key, double min, double max, double fallback) const;
  std::optional<double> number_if(std::string_view key, double min, double max) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view fallback) const;
  const boost::json::array* list(std::string_view key) const;     ///< Null when absent.
  const boost::json::object* nested(std::string_view key) const;  ///< Null when absent.

  /// Throws the ConfigError `where: "key" must be <expected>, it is <value>`.
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const;

 private:
  const boost::json::object* object_;
  std::string where_;
};

}  // namespace tandem::runtime
