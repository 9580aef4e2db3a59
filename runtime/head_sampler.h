// SPDX-License-Identifier: Apache-2.0
// From final activations to tokens: the vocab-parallel head, logit processing, and the choice over
// all ranks, each rank arriving at the same token. Enqueues on the compute stream; allocates
// nothing. Owns its buffers.
#pragma once

#include "kernels/head.h"
#include "kernels/op_work.h"
#include "kernels/sample.h"
#include "parallel/tp_group.h"
#include "runtime/batch_plan.h"
#include "runtime/model.h"

namespace tandem::runtime {

/// How one step samples.
struct SampleChoice {
  SampleMode mode = SampleMode::kBest;
  bool process_logits = false;
  bool logprobs = false;
};

template <typename T, Device D>
class HeadSampler {
 public:
  HeadSampler(Context<D>& ctx, const Model<T, D>& model, const parallel::TpGroup<D>& group,
              std::int32_t max_samples, std::int32_t max_scores);

  /// Makes tokens of every sample, and what `end` says of slots and next rows; with
  /// `choice.logprobs` also `logprobs()`. `normed` holds the sampled rows in their order, or
  /// `all_rows` of the step; `deferred`: the norm that may be due.
  void run(Context<D>& ctx, TensorView<const T, D> normed, kernels::DeferredNorm<T, D>& deferred,
           bool all_rows, kernels::EndStepArgs<D> end, const kernels::LogitBiasView<D>& bias,
           const SampleChoice& choice);

  /// Log-probabilities of `targets[i]` after row `rows[i]` of `normed`, in `scores()`; before `run`
  /// of the same step. The head runs on as many rows at a time as can be sampled.
  void score(Context<D>& ctx, TensorView<const T, D> normed, std::int32_t count,
             const std::int32_t* rows, const std::int32_t* targets);
  const Buffer<kernels::TokenLogprob, D>& scores() const { return scores_; }

  /// A run with samples was enqueued, not just captured: its tokens are `tokens()` from here on.
  void ran() { newest_ ^= 1; }
  /// [num_samples]; written again by the run after the next.
  const std::int32_t* tokens() const { return tokens_.data() + newest_ * max_samples_; }
  const Buffer<kernels::TokenLogprob, D>& logprobs() const { return logprobs_; }
  /// This rank's logits of the last step `[num_samples, shard width]`; for tests.
  const Buffer<float, D>& shard_logits() const { return shard_logits_; }
  std::int64_t shard_width() const { return width_; }

 private:
  kernels::HeadArgs<T, D> head_args(TensorView<const T, D> normed,
                                    const kernels::SampleView<D>& samples) const;
  void compute_logits(Context<D>& ctx, const kernels::HeadArgs<T, D>& head);
  /// This rank's columns; rows lie `width_` apart.
  TensorView<float, D> own_logits(std::int32_t num_samples) const {
    TensorView<float, D> logits = shard_logits_.view(num_samples, width_);
    logits.cols = model_.shard.vocab().size();
    return logits;
  }
  /// Whole rows: the shards of all ranks side by side.
  TensorView<const float, D> gather_logits(Context<D>& ctx, std::int32_t num_samples);
  void choose_full(Context<D>& ctx, const kernels::ShardArgs<D>& shard, bool want_logprobs);

  const Model<T, D>& model_;
  parallel::TpGroup<D> group_;
  std::int32_t max_samples_;
  std::int64_t width_;  ///< Columns of the widest shard; all ranks exchange this many.
  Buffer<T, D> gathered_rows_;
  Buffer<float, D> shard_logits_, gathered_logits_, logits_;
  Buffer<kernels::TokenKey, D> best_, gathered_best_;  ///< Zero but within a step; of all ranks.
  Buffer<std::int32_t, D> sampled_, tokens_, turn_, vocab_begin_;
  int newest_ = 1;  ///< Of the two arrays of `tokens_`; the device's `turn_` is the other.
  Buffer<kernels::TokenLogprob, D> logprobs_, scores_;
};

}  // namespace tandem::runtime
