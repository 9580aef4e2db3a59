// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/served_facts.h"

#include <boost/json.hpp>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

std::int64_t number(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

std::string text(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace

ServedFacts served_facts(const ServerAddress& server) {
  const HttpAnswer answer = http_get(server, "/v1/models");
  TANDEM_REQUIRE(answer.status != 401 && answer.status != 403,
                 "the server wants an API key; add --api-key KEY");
  ServedFacts facts;
  boost::system::error_code wrong;
  const json::value value = json::parse(answer.body, wrong);
  if (wrong || !value.is_object() || answer.status != 200) return facts;
  const json::value* data = value.get_object().if_contains("data");
  if (data == nullptr || !data->is_array() || data->get_array().empty() ||
      !data->get_array()[0].is_object())
    return facts;
  const json::object& model = data->get_array()[0].get_object();
  facts.model = text(model, "id");
  facts.max_model_len = static_cast<std::int32_t>(number(model, "max_model_len"));
  facts.vocab_size = number(model, "vocab_size");
  const std::string owner = text(model, "owned_by");
  facts.is_tandem = owner == "tandem";
  facts.gives_token_ids = facts.is_tandem || owner == "vllm";
  return facts;
}

std::optional<ServedCounts> served_counts(const ServerAddress& server, const ServedFacts& facts) {
  if (!facts.is_tandem) return std::nullopt;
  const HttpAnswer answer = http_get(server, "/status");
  boost::system::error_code wrong;
  const json::value value = json::parse(answer.body, wrong);
  if (wrong || !value.is_object()) return std::nullopt;
  const json::object& status = value.get_object();
  ServedCounts counts;
  counts.steps = number(status, "steps");
  counts.prefill_tokens = number(status, "prefill_tokens");
  counts.prefix_queries = number(status, "prefix_queries_tokens");
  counts.prefix_hits = number(status, "prefix_hits_tokens");
  counts.preemptions = number(status, "preemptions");
  counts.unfinished = number(status, "running") + number(status, "waiting");
  const json::value* ranks = status.if_contains("ranks");
  if (ranks != nullptr && ranks->is_array() && !ranks->get_array().empty()) {
    counts.ranks = static_cast<std::int64_t>(ranks->get_array().size());
    counts.device = text(ranks->get_array()[0].as_object(), "device");
  }
  return counts;
}

}  // namespace tandem::launch
