// SPDX-License-Identifier: Apache-2.0
#include "runtime/sequence.h"

#include <algorithm>
#include <limits>
#include <map>

#include "kernels/device/error.h"

namespace tandem::runtime {

bool Sequence::is_stop_id(std::int32_t token) const {
  const auto* end = params.stop_ids + params.num_stop_ids;
  return std::find(params.stop_ids, end, token) != end;
}

bool Sequence::wants_full_row() const {
  const SamplingParams& p = request->params;
  if (p.logprobs) return true;
  if (p.temperature == 0.0f) return false;
  return p.top_k > 0 || p.top_p < 1.0f || p.min_p > 0.0f || p.typical_p < 1.0f;
}

bool Sequence::wants_processing(std::int32_t position) const {
  const SamplingParams& p = request->params;
  const std::int32_t new_tokens = position + 1 - num_prompt();
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f ||
         p.frequency_penalty != 0.0f || p.no_repeat_ngram > 0 || !p.logit_bias.empty() ||
         !p.allowed_token_ids.empty() || !p.bad_words.empty() || new_tokens < p.min_tokens;
}

std::uint64_t mix_seed(std::uint64_t seed, std::int32_t sample) {
  if (sample == 0) return seed;
  // The finaliser of SplitMix64 (Steele et al. 2014): neighbouring inputs give unrelated keys.
  std::uint64_t z = seed + static_cast<std::uint64_t>(sample) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

kernels::SlotParams make_slot_params(const Request& request,
                                     const std::vector<std::int32_t>& eos_ids,
                                     std::int32_t sample) {
  const SamplingParams& p = request.params;
  kernels::SlotParams out;
  out.seed = mix_seed(p.seed, sample);
  out.temperature = p.temperature;
  out.top_p = p.top_p;
  out.min_p = p.min_p;
  out.typical_p = p.typical_p;
  out.repetition_penalty = p.repetition_penalty;
  out.presence_penalty = p.presence_penalty;
  out.frequency_penalty = p.frequency_penalty;
  out.top_k = std::max(p.top_k, 0);
  out.min_tokens = p.min_tokens;
  out.no_repeat_ngram = p.no_repeat_ngram;
  out.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());

  std::vector<std::int32_t> stops = p.stop_token_ids;
  if (!p.ignore_eos) stops.insert(stops.end(), eos_ids.begin(), eos_ids.end());
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  TANDEM_REQUIRE(stops.size() <= kernels::kMaxStopIds, "A request can have at most ",
                 kernels::kMaxStopIds, " stop token ids (end-of-sequence ids included), not ",
                 stops.size(), "; shorten stop_token_ids.");
  out.num_stop_ids = static_cast<std::int32_t>(stops.size());
  std::copy(stops.begin(), stops.end(), out.stop_ids);
  return out;
}

std::vector<std::pair<std::int32_t, float>> static_bias(const SamplingParams& params) {
  std::map<std::int32_t, float> bias;
  for (const auto& [token, value] : params.logit_bias) bias[token] += value;
  for (const auto& word : params.bad_words)
    if (word.size() == 1) bias[word.front()] = -std::numeric_limits<float>::infinity();
  return {bias.begin(), bias.end()};
}

std::vector<std::vector<std::int32_t>> long_bad_words(const SamplingParams& params) {
  std::vector<std::vector<std::int32_t>> words;
  for (const auto& word : params.bad_words)
    if (word.size() > 1) words.push_back(word);
  return words;
}

}  // namespace tandem::runtime
