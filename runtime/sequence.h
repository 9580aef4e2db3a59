// SPDX-License-Identifier: Apache-2.0
// One sample of a request on its way through the scheduler. Invariant while it runs: `planned`
// positions have their KV computed by plans made so far, and the token at position `planned` is
// either known or in flight. Plain state, owned by the scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvcache/prefix_index.h"
#include "runtime/request.h"

namespace tandem::runtime {

struct Sequence {
  enum class State : std::uint8_t { kWaiting, kRunning, kFinished };

  std::shared_ptr<const Request> request;
  std::int32_t sample = 0;
  std::int64_t order = 0;  ///< Arrival; earlier ones go first and are preempted last.
  kernels::SlotParams params;
  std::int32_t max_total_tokens = 0;  ///< Prompt and answer.
  State state = State::kWaiting;

  std::vector<std::int32_t> tokens;  ///< Prompt, then the committed answer.
  std::int32_t in_flight = 0;        ///< Sampled by plans that are not committed.
  std::int32_t scored = 0;           ///< Prompt rows whose scores were planned; the first ones.
  std::vector<std::vector<kernels::TokenLogprob>> prompt_logprobs;  ///< Those that came.

  // While running.
  std::int32_t slot = -1;
  std::vector<std::int32_t> chunks;
  std::int32_t prefill_end = 0;  ///< Tokens known at admission; they are prefilled.
  std::int32_t planned = 0;
  std::int64_t last_step = -1;  ///< Last plan that names its slot or chunks.
  std::int32_t indexed_chunks = 0;
  kvcache::PrefixIndex::NodeId prefix_node = kvcache::PrefixIndex::kRoot;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t num_prompt() const { return params.prompt_tokens; }
  bool fresh() const { return num_tokens() == num_prompt() && in_flight == 0; }
  bool prefilling() const { return planned < prefill_end; }
  /// Has a next token to compute, as far as lengths tell.
  bool can_decode() const { return !prefilling() && num_tokens() + in_flight < max_total_tokens; }
  bool is_stop_id(std::int32_t token) const;
  /// Prompt rows are still to be scored; then no cached prefix may replace them.
  bool wants_scores() const {
    return sample == 0 && request->params.prompt_logprobs && scored < num_prompt() - 1;
  }

  /// More than greedy or temperature: the whole row of logits is wanted.
  bool wants_full_row() const;
  /// The logits of the row at `position` are changed before sampling.
  bool wants_processing(std::int32_t position) const;
};

/// The device parameters of sample `sample`. ConfigError for more than kMaxStopIds stop ids.
kernels::SlotParams make_slot_params(const Request& request,
                                     const std::vector<std::int32_t>& eos_ids, std::int32_t sample);

/// The key of a sample's noise: sample 0 keeps the request's seed.
std::uint64_t mix_seed(std::uint64_t seed, std::int32_t sample);

/// Added values per token, each token once: the request's logit_bias and its bad words of one
/// token.
std::vector<std::pair<std::int32_t, float>> static_bias(const SamplingParams& params);

/// The bad words of two tokens or more.
std::vector<std::vector<std::int32_t>> long_bad_words(const SamplingParams& params);

}  // namespace tandem::runtime
