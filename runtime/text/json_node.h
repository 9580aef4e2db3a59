// SPDX-License-Identifier: Apache-2.0
// A view of one value inside a JSON file that remembers its place ("tokenizer.json: model.vocab"),
// so that every wrong type becomes one ConfigError which names it. The document must outlive it.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::runtime {

class JsonNode {
 public:
  JsonNode(const boost::json::value& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const boost::json::value& value() const { return *value_; }
  const std::string& place() const { return place_; }

  JsonNode at(std::string_view key) const;                   ///< Must be there.
  std::optional<JsonNode> find(std::string_view key) const;  ///< None when absent or null.
  JsonNode element(std::size_t index) const;

  const boost::json::object& object() const;
  const boost::json::array& array() const;
  std::string_view string() const;
  bool boolean() const;
  std::int64_t integer() const;

  bool boolean_or(std::string_view key, bool fallback) const;
  std::string_view string_or(std::string_view key, std::string_view fallback) const;

  /// Throws ConfigError: "<place> <what>; download the tokenizer again".
  [[noreturn]] void fail(std::string_view what) const;

 private:
  const boost::json::value* value_;
  std::string place_;
};

}  // namespace tandem::runtime
