// SPDX-License-Identifier: Apache-2.0
// Bodies of HeadSampler; included once per device by runtime/engine_<device>.cc.
#include <algorithm>
#include <vector>

#include "runtime/head_sampler.h"

namespace tandem::runtime {

template <typename T, Device D>
HeadSampler<T, D>::HeadSampler(Context<D>& ctx, const Model<T, D>& model,
                               const parallel::TpGroup<D>& group, std::int32_t max_samples,
                               std::int32_t max_scores)
    : model_(model),
      group_(group),
      max_samples_(max_samples),
      // Rank 0 has the widest shard: `split_evenly` gives first ranks the extra units.
      width_(parallel::split_evenly(model.config.vocab_size, parallel::kColumnUnit, 0, group.size)
                 .size()),
      gathered_rows_(max_samples * model.config.hidden_size),
      shard_logits_(max_samples * width_),
      gathered_logits_(group.size > 1 ? group.size * max_samples * width_ : 0),
      logits_(group.size > 1 ? max_samples * model.config.vocab_size : 0),
      best_(max_samples),
      gathered_best_(std::int64_t{group.size} * max_samples),
      sampled_(max_samples),
      tokens_(std::int64_t{2} * max_samples),
      turn_(1),
      vocab_begin_(group.size + 1),
      logprobs_(std::int64_t{max_samples} * (1 + kernels::kMaxLogprobs)),
      scores_(std::int64_t{max_scores} * (1 + kernels::kMaxLogprobs)) {
  std::vector<std::int32_t> begins;
  for (int rank = 0; rank < group.size; ++rank)
    begins.push_back(static_cast<std::int32_t>(
        parallel::split_evenly(model.config.vocab_size, parallel::kColumnUnit, rank, group.size)
            .begin));
  begins.push_back(static_cast<std::int32_t>(model.config.vocab_size));
  fill_zero(ctx, best_.data(), best_.size_bytes());
  fill_zero(ctx, turn_.data(), turn_.size_bytes());
  copy_to_device(ctx, vocab_begin_.data(), begins.data(),
                 static_cast<std::int64_t>(begins.size() * sizeof begins[0]));
  ctx.compute().synchronize();
}

template <typename T, Device D>
void HeadSampler<T, D>::run(Context<D>& ctx, TensorView<const T, D> normed,
                            kernels::DeferredNorm<T, D>& deferred, bool all_rows,
                            kernels::EndStepArgs<D> end, const kernels::LogitBiasView<D>& bias,
                            const SampleChoice& choice) {
  const std::int32_t count = end.samples.num_samples;
  if (count == 0) return;
  kernels::SampleView<D> of_normed = end.samples;
  if (!all_rows) of_normed.rows = nullptr;
  kernels::HeadArgs<T, D> head = head_args(normed, of_normed);
  head.deferred = &deferred;
  kernels::ShardArgs<D> shard;
  shard.samples = end.samples;
  shard.positions = end.positions;
  shard.slots = end.slots;
  shard.logits = head.logits;
  shard.vocab_begin = model_.shard.vocab().begin;
  shard.vocab_size = model_.config.vocab_size;
  const bool best = choice.mode == SampleMode::kBest && !choice.logprobs;
  if (best && !choice.process_logits) {
    const OpTimer timer(ctx, Activity::kHead,
                        [&] { return kernels::matmul_work(count, model_.head); });
    kernels::head_best(ctx, head, shard, best_.data());
  } else {
    compute_logits(ctx, head);
    if (choice.process_logits) kernels::process_logits(ctx, shard, bias);
    if (best)
      kernels::best_of_shard(ctx, shard, best_.data());
    else
      choose_full(ctx, shard, choice.logprobs);
  }
  if (!best) end.sampled = sampled_.data();
  end.best = best_.data();
  if (best && group_.size > 1) {
    group_.communicator->all_gather(ctx, best_.data(), gathered_best_.data(),
                                    count * std::int64_t{sizeof(kernels::TokenKey)});
    end.gathered = gathered_best_.data();
    end.ranks = group_.size;
  }
  end.tokens = tokens_.data();
  end.tokens_stride = max_samples_;
  end.turn = turn_.data();
  kernels::end_step(ctx, end);
}

template <typename T, Device D>
kernels::HeadArgs<T, D> HeadSampler<T, D>::head_args(TensorView<const T, D> normed,
                                                     const kernels::SampleView<D>& samples) const {
  kernels::HeadArgs<T, D> head;
  head.samples = samples;
  head.normed = normed;
  head.weight = &model_.head;
  head.scale = model_.config.logit_scale;
  head.softcap = model_.config.final_softcap;
  head.gathered = gathered_rows_.view(samples.num_samples, model_.config.hidden_size);
  head.logits = own_logits(samples.num_samples);
  return head;
}

template <typename T, Device D>
void HeadSampler<T, D>::compute_logits(Context<D>& ctx, const kernels::HeadArgs<T, D>& head) {
  const OpTimer timer(ctx, Activity::kHead,
                      [&] { return kernels::matmul_work(head.logits.rows, model_.head); });
  kernels::head(ctx, head);
}

template <typename T, Device D>
void HeadSampler<T, D>::score(Context<D>& ctx, TensorView<const T, D> normed, std::int32_t count,
                              const std::int32_t* rows, const std::int32_t* targets) {
  for (std::int32_t begin = 0; begin < count; begin += max_samples_) {
    kernels::SampleView<D> samples;
    samples.num_samples = std::min(max_samples_, count - begin);
    samples.rows = rows + begin;
    compute_logits(ctx, head_args(normed, samples));
    kernels::ScoreArgs<D> args;
    args.logits = gather_logits(ctx, samples.num_samples);
    args.vocab_size = model_.config.vocab_size;
    args.targets = targets + begin;
    args.logprobs = scores_.data() + std::int64_t{begin} * (1 + kernels::kMaxLogprobs);
    kernels::score(ctx, args);
  }
}

template <typename T, Device D>
TensorView<const float, D> HeadSampler<T, D>::gather_logits(Context<D>& ctx,
                                                            std::int32_t num_samples) {
  if (group_.size == 1)
    return TensorView<const float, D>(shard_logits_.data(), num_samples, width_);
  group_.communicator->all_gather(ctx, shard_logits_.data(), gathered_logits_.data(),
                                  num_samples * width_ * 4);
  kernels::JoinShardsArgs<D> join;
  join.gathered = gathered_logits_.data();
  join.vocab_begin = vocab_begin_.data();
  join.ranks = group_.size;
  join.num_samples = num_samples;
  join.width = width_;
  join.out = logits_.view(num_samples, model_.config.vocab_size);
  kernels::join_shards(ctx, join);
  return TensorView<const float, D>(logits_.data(), num_samples, model_.config.vocab_size);
}

template <typename T, Device D>
void HeadSampler<T, D>::choose_full(Context<D>& ctx, const kernels::ShardArgs<D>& shard,
                                    bool want_logprobs) {
  kernels::FullSampleArgs<D> full;
  full.logits = gather_logits(ctx, shard.samples.num_samples);
  full.samples = shard.samples;
  full.positions = shard.positions;
  full.slots = shard.slots;
  full.vocab_size = model_.config.vocab_size;
  full.tokens = sampled_.data();
  full.logprobs = want_logprobs ? logprobs_.data() : nullptr;
  kernels::sample_full(ctx, full);
}

}  // namespace tandem::runtime
