// SPDX-License-Identifier: Apache-2.0
// From logits to tokens on a vocabulary that is split over ranks. Two ways, chosen by the plan for
// a whole step:
//  - `best_of_shard` (or `head_best`, which makes the logits too) and `end_step`: greedy rows and
//    rows that only have a temperature. Each rank reduces its shard to one key; a few bytes travel.
//    Temperature uses the Gumbel-max trick: argmax(logit / t + noise) is distributed as
//    softmax(logit / t).
//  - `sample_full`: anything else, on the gathered logits of the row.
// Noise is counter-based (Philox 4x32-10, Salmon et al. 2011), keyed by (seed, position, token
// id): a result depends on nothing else, not on batch, rank count or device.
#pragma once

#include "kernels/step.h"
#include "kernels/step_view.h"
#include "kernels/token_key.h"

namespace tandem::kernels {

struct TokenLogprob {
  float logprob = 0;
  std::int32_t id = 0;
};
inline constexpr int kMaxLogprobs = 20;

template <Device D>
struct ShardArgs {
  SampleView<D> samples;
  const std::int32_t* positions = nullptr;  ///< [num_tokens] of the step
  SlotView<D> slots;
  TensorView<float, D> logits;   ///< [num_samples, vocab shard] of this rank
  std::int64_t vocab_begin = 0;  ///< Id of column 0.
  std::int64_t vocab_size = 0;   ///< Columns at or past it are padding: never sampled.
};

/// Applies in place what looks at single tokens: repetition, presence and frequency penalties
/// (vLLM's definitions), no-repeat n-grams, minimum length, the sparse per-slot bias, and bad words
/// of several tokens: their last one is forbidden when the answer ends with the ones before it.
template <Device D>
struct LogitBiasView {
  const std::int32_t* begin = nullptr;  ///< [slots + 1] range of each slot, or null: no bias at all
  const std::int32_t* ids = nullptr;    ///< Global token ids
  const float* values = nullptr;        ///< Added; -infinity forbids
  const std::uint8_t* exclusive =
      nullptr;  ///< [slots] 1: only the listed ids are allowed; null: none
  const std::int32_t* word_begin = nullptr;   ///< [slots + 1] bad words of each slot, or null: none
  const std::int32_t* word_tokens = nullptr;  ///< [words + 1] first of each word in `words`
  const std::int32_t* words = nullptr;        ///< Their tokens, one word behind the other
};
void process_logits(Context<Cpu>& ctx, const ShardArgs<Cpu>& args, const LogitBiasView<Cpu>& bias);
void process_logits(Context<Cuda>& ctx, const ShardArgs<Cuda>& args,
                    const LogitBiasView<Cuda>& bias);

/// Raises best[i], 0 before, to the key of the largest logit / temperature + noise and its global
/// id; ties: the lowest id.
void best_of_shard(Context<Cpu>& ctx, const ShardArgs<Cpu>& args, TokenKey* best);
void best_of_shard(Context<Cuda>& ctx, const ShardArgs<Cuda>& args, TokenKey* best);

/// Shards of logits side by side: `gathered` `[ranks, num_samples, width]`, where rank r's first
/// `vocab_begin[r + 1] - vocab_begin[r]` columns count, becomes `out` `[num_samples, vocab]`.
template <Device D>
struct JoinShardsArgs {
  const float* gathered = nullptr;
  const std::int32_t* vocab_begin = nullptr;  ///< [ranks + 1] on device D
  std::int32_t ranks = 0, num_samples = 0;
  std::int64_t width = 0;
  TensorView<float, D> out;
};
void join_shards(Context<Cpu>& ctx, const JoinShardsArgs<Cpu>& args);
void join_shards(Context<Cuda>& ctx, const JoinShardsArgs<Cuda>& args);

/// Samples from whole rows: `logits` `[num_samples, vocab]`. Order as vLLM: temperature, then
/// min-p, top-k, top-p (typical-p after them), renormalised, Gumbel-max over what is left.
/// `logprobs` (or null) gets, per row, [0] the sampled token and [1..kMaxLogprobs] the largest, all
/// from log-softmax of the processed logits before temperature.
template <Device D>
struct FullSampleArgs {
  SampleView<D> samples;
  const std::int32_t* positions = nullptr;
  SlotView<D> slots;
  TensorView<const float, D> logits;  ///< [num_samples, >= vocab_size]
  std::int64_t vocab_size = 0;
  std::int32_t* tokens = nullptr;    ///< [num_samples]
  TokenLogprob* logprobs = nullptr;  ///< [num_samples, 1 + kMaxLogprobs] or null
};
void sample_full(Context<Cpu>& ctx, const FullSampleArgs<Cpu>& args);
void sample_full(Context<Cuda>& ctx, const FullSampleArgs<Cuda>& args);

/// Log-probabilities of given tokens: per row [0] the target and [1..kMaxLogprobs] the largest,
/// from log-softmax of the row.
template <Device D>
struct ScoreArgs {
  TensorView<const float, D> logits;  ///< [rows, >= vocab_size]
  std::int64_t vocab_size = 0;
  const std::int32_t* targets = nullptr;  ///< [rows]
  TokenLogprob* logprobs = nullptr;       ///< [rows, 1 + kMaxLogprobs]
};
void score(Context<Cpu>& ctx, const ScoreArgs<Cpu>& args);
void score(Context<Cuda>& ctx, const ScoreArgs<Cuda>& args);

}  // namespace tandem::kernels
