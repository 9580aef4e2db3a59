// SPDX-License-Identifier: Apache-2.0
// The JSON bodies of /v1/chat/completions and /v1/completions as plain values. Names and meanings
// are OpenAI's, the extra ones vLLM's. A field of a wrong type or range, and one that would change
// the answer but is not supported, is an ApiError 400 that names it; harmless ones are ignored.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/model_config.h"
#include "runtime/request.h"

namespace tandem::launch {

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  bool chat = false;
  std::string model;            ///< "" when not given.
  std::vector<Prompt> prompts;  ///< Of /v1/completions.
  boost::json::array messages;  ///< Of /v1/chat/completions; contents are strings.
  boost::json::object template_variables;
  bool add_special_tokens = true, skip_special_tokens = true;
  runtime::SamplingParams params;  ///< max_tokens and seed: see below.
  std::optional<std::int32_t> max_tokens;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> bad_words;
  bool tokens_as_ids = false;                   ///< Log-probabilities name tokens "token_id:N".
  std::optional<std::int32_t> prompt_logprobs;  ///< vLLM's; `params` has the larger with `echo`'s.
  bool prompt_only = false;       ///< `echo` with max_tokens 0: the answer's token is not shown.
  bool return_token_ids = false;  ///< Choices bring `token_ids` beside their text.
  bool stream = false, include_usage = false, echo = false;
};

/// What the model's generation_config.json says about fields that a request leaves out.
runtime::SamplingParams default_sampling(const runtime::ModelConfig& config);

/// A JSON object, or ApiError 400.
boost::json::object parse_body(std::string_view body);

CompletionRequest parse_completion_request(const boost::json::object& body, bool chat,
                                           const runtime::SamplingParams& defaults);

/// The `messages` of `body` with their contents made strings.
boost::json::array parse_messages(const boost::json::object& body);

/// Token ids given as JSON numbers.
std::vector<std::int32_t> parse_token_ids(const boost::json::array& list, const char* field);

}  // namespace tandem::launch
