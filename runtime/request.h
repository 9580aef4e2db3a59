// SPDX-License-Identifier: Apache-2.0
// What a user asks for and what comes back, in tokens. Text, stop strings and JSON are the
// business of `runtime/text` and `launch`. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sample.h"

namespace tandem::runtime {

using RequestId = std::int64_t;

/// Names and meanings as vLLM's SamplingParams.
struct SamplingParams {
  float temperature = 0.0f;  ///< 0: greedy.
  float top_p = 1.0f, min_p = 0.0f, typical_p = 1.0f;
  std::int32_t top_k = 0;  ///< 0 or -1: all.
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  std::int32_t no_repeat_ngram = 0;
  std::uint64_t seed = 0;
  std::int32_t max_tokens = 16, min_tokens = 0;
  std::int32_t n = 1;
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids;
  std::vector<std::string> stop;  ///< Stop strings, found on the host.
  bool include_stop_str = false;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::vector<std::int32_t> allowed_token_ids;
  std::vector<std::vector<std::int32_t>> bad_words;  ///< Token sequences never generated.
  std::optional<std::int32_t> logprobs;              ///< Top alternatives per token, at most 20.
  std::optional<std::int32_t> prompt_logprobs;       ///< The same for the prompt's tokens.

  /// ConfigError with one sentence for a value out of range.
  void validate(std::int32_t vocab_size) const;
};

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kAbort };
const char* name(FinishReason reason);  ///< "stop", "length", "abort"; "" for kNone.

struct Request {
  RequestId id = 0;
  std::vector<std::int32_t> prompt;
  SamplingParams params;
};

/// One token of one sample of a request, or its end.
struct TokenEvent {
  RequestId request = 0;
  std::int32_t sample = 0;  ///< 0 .. n-1
  std::int32_t token = -1;  ///< -1: no token, only the end.
  FinishReason finish = FinishReason::kNone;
  std::vector<kernels::TokenLogprob> logprobs;  ///< [0] the token itself, then the largest.
  /// With the first token of sample 0: the same of the prompt's tokens from the second on, if
  /// wanted.
  std::vector<std::vector<kernels::TokenLogprob>> prompt_logprobs;
};

}  // namespace tandem::runtime
