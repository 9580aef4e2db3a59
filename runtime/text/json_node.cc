// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/json_node.h"

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace json = boost::json;

void JsonNode::fail(std::string_view what) const {
  throw ConfigError(concat(place_, " ", what, "; download the tokenizer again"));
}

const json::object& JsonNode::object() const {
  if (!value_->is_object()) fail("must be an object");
  return value_->get_object();
}

const json::array& JsonNode::array() const {
  if (!value_->is_array()) fail("must be a list");
  return value_->get_array();
}

std::string_view JsonNode::string() const {
  if (!value_->is_string()) fail("must be a string");
  return value_->get_string();
}

bool JsonNode::boolean() const {
  if (!value_->is_bool()) fail("must be true or false");
  return value_->get_bool();
}

std::int64_t JsonNode::integer() const {
  if (!value_->is_int64()) fail("must be a whole number below 2^63");
  return value_->get_int64();
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  const json::value* found = object().if_contains(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  const bool top = place_.ends_with(':');
  return JsonNode(*found, concat(place_, top ? " " : ".", key));
}

JsonNode JsonNode::at(std::string_view key) const {
  auto found = find(key);
  if (!found) fail(concat("lacks '", key, "'"));
  return *std::move(found);
}

JsonNode JsonNode::element(std::size_t index) const {
  return {array().at(index), concat(place_, "[", index, "]")};
}

bool JsonNode::boolean_or(std::string_view key, bool fallback) const {
  const auto found = find(key);
  return found ? found->boolean() : fallback;
}

std::string_view JsonNode::string_or(std::string_view key, std::string_view fallback) const {
  const auto found = find(key);
  return found ? found->string() : fallback;
}

}  // namespace tandem::runtime
