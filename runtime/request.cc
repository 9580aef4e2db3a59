// SPDX-License-Identifier: Apache-2.0
#include "runtime/request.h"

#include <cmath>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

/// Limits as OpenAI's and vLLM's interfaces have them.
constexpr float kMaxPenalty = 2.0f, kMaxBias = 100.0f;
constexpr std::int32_t kMaxSamples = 128;

void in_range(const char* name, float value, float low, float high) {
  TANDEM_REQUIRE(value >= low && value <= high, name, " is ", value, "; choose a value from ", low,
                 " to ", high, ".");
}

void at_least(const char* name, std::int32_t value, std::int32_t low) {
  TANDEM_REQUIRE(value >= low, name, " is ", value, "; choose at least ", low, ".");
}

void in_vocabulary(const char* name, std::int32_t id, std::int32_t vocab_size) {
  TANDEM_REQUIRE(0 <= id && id < vocab_size, name, " names token ", id,
                 ", but the model's tokens are 0 to ", vocab_size - 1, "; leave it out.");
}

}  // namespace

void SamplingParams::validate(std::int32_t vocab_size) const {
  TANDEM_REQUIRE(temperature >= 0.0f && std::isfinite(temperature), "temperature is ", temperature,
                 "; choose 0 (greedy) or more.");
  TANDEM_REQUIRE(top_p > 0.0f && top_p <= 1.0f, "top_p is ", top_p,
                 "; choose a value above 0 and at most 1.");
  TANDEM_REQUIRE(typical_p > 0.0f && typical_p <= 1.0f, "typical_p is ", typical_p,
                 "; choose a value above 0 and at most 1.");
  in_range("min_p", min_p, 0.0f, 1.0f);
  at_least("top_k", top_k, -1);
  TANDEM_REQUIRE(repetition_penalty > 0.0f && std::isfinite(repetition_penalty),
                 "repetition_penalty is ", repetition_penalty, "; choose a value above 0.");
  in_range("presence_penalty", presence_penalty, -kMaxPenalty, kMaxPenalty);
  in_range("frequency_penalty", frequency_penalty, -kMaxPenalty, kMaxPenalty);
  at_least("no_repeat_ngram", no_repeat_ngram, 0);
  at_least("max_tokens", max_tokens, 1);
  at_least("min_tokens", min_tokens, 0);
  TANDEM_REQUIRE(min_tokens <= max_tokens, "min_tokens is ", min_tokens, " and max_tokens only ",
                 max_tokens, "; raise max_tokens or lower min_tokens.");
  at_least("n", n, 1);
  TANDEM_REQUIRE(n <= kMaxSamples, "n is ", n, "; choose at most ", kMaxSamples, ".");
  for (const std::int32_t id : stop_token_ids) in_vocabulary("stop_token_ids", id, vocab_size);
  for (const std::string& text : stop) {
    TANDEM_REQUIRE(!text.empty(), "stop has an empty string; leave it out.");
  }
  for (const auto& [id, value] : logit_bias) {
    in_vocabulary("logit_bias", id, vocab_size);
    in_range("logit_bias", value, -kMaxBias, kMaxBias);
  }
  for (const std::int32_t id : allowed_token_ids) {
    in_vocabulary("allowed_token_ids", id, vocab_size);
  }
  for (const auto& word : bad_words) {
    TANDEM_REQUIRE(!word.empty(), "bad_words has a word without a token; leave it out.");
    for (const std::int32_t id : word) in_vocabulary("bad_words", id, vocab_size);
  }
  for (const auto& [count, name] :
       {std::pair{logprobs, "logprobs"}, std::pair{prompt_logprobs, "prompt_logprobs"}}) {
    TANDEM_REQUIRE(!count || (0 <= *count && *count <= kernels::kMaxLogprobs), name, " is ",
                   count.value_or(0), "; choose a value from 0 to ", kernels::kMaxLogprobs, ".");
  }
}

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kNone:
      break;
  }
  return "";
}

}  // namespace tandem::runtime
