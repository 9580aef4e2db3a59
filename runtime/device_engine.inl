// SPDX-License-Identifier: Apache-2.0
// Bodies of DeviceEngine; included once per device by runtime/engine_<device>.cc.
#include "runtime/decoder.inl"
#include "runtime/device_engine.h"
#include "runtime/head_sampler.inl"

namespace tandem::runtime {

/// Decode rows that a step of `rows` sequences runs with. A CPU graph costs nothing to make, so
/// there is no padding.
inline std::int32_t decode_bucket(Cpu, std::int32_t rows, std::int32_t) { return rows; }

/// 1, 2, 4, then steps of 4 up to 16, of 8 up to 32, of 16 up to 64, of 32 above.
inline std::int32_t decode_bucket(Cuda, std::int32_t rows, std::int32_t max_rows) {
  const std::int32_t step = rows <= 2 ? 1 : rows <= 16 ? 4 : rows <= 32 ? 8 : rows <= 64 ? 16 : 32;
  return std::min((rows + step - 1) / step * step, max_rows);
}

template <typename T, Device D>
DeviceEngine<T, D>::DeviceEngine(Parts parts)
    : limits_(parts.limits),
      context_(std::move(parts.context)),
      communicator_(std::move(parts.communicator)),
      group_{parts.rank, parts.size, communicator_.get()},
      model_(std::move(parts.model)),
      slots_(*context_, limits_),
      kv_({static_cast<std::int32_t>(model_.config.num_layers()),
           static_cast<std::int32_t>(model_.shard.kv_heads().size()),
           static_cast<std::int32_t>(model_.config.head_dim), static_cast<std::int32_t>(sizeof(T))},
          limits_.num_chunks, parts.kv_segment_bytes),
      inputs_(limits_),
      decoder_(model_, limits_.max_num_batched_tokens),
      sampler_(*context_, model_, group_, limits_.max_num_seqs) {
  kv_.grow_to(limits_.mapped_chunks);
  for (Readback& readback : readback_) {
    readback.tokens = HostBuffer<std::int32_t, D>(limits_.max_num_seqs);
    readback.logprobs = HostBuffer<kernels::TokenLogprob, D>(std::int64_t{limits_.max_num_seqs} *
                                                             (1 + kernels::kMaxLogprobs));
  }
}

template <typename T, Device D>
void DeviceEngine<T, D>::submit(const BatchPlan& plan) {
  TANDEM_ASSERT(pending_.size() < 2, "more than two steps in flight");
  kv_.grow_to(plan.mapped_chunks);
  slots_.apply(*context_, plan);
  copy_chunks(plan);
  const SampleChoice choice{plan.sample_mode, plan.process_logits, plan.logprobs};
  const auto decode = static_cast<std::int32_t>(plan.decode_slots.size());
  if (plan.segments.empty()) {
    const std::int32_t bucket = decode_bucket(D{}, decode, limits_.max_num_seqs);
    inputs_.upload(*context_, plan, bucket);
    run_decode(plan, choice, bucket);
    read_back(plan, bucket);
  } else {
    inputs_.upload(*context_, plan, decode);
    run_rows(choice);
    read_back(plan, decode);
  }
}

template <typename T, Device D>
void DeviceEngine<T, D>::copy_chunks(const BatchPlan& plan) {
  for (const ChunkCopy& copy : plan.chunk_copies)
    copy_on_device(*context_, kv_.chunk(copy.to), kv_.chunk(copy.from),
                   kv_.geometry().chunk_bytes());
}

/// Everything between the uploaded plan and the sampled tokens; what a decode graph holds.
template <typename T, Device D>
void DeviceEngine<T, D>::run_rows(const SampleChoice& choice) {
  const kernels::StepView<D> step = inputs_.view();
  const kernels::SlotView<D> slots = slots_.view();
  kernels::begin_step(*context_, inputs_.begin(slots));
  const auto normed = decoder_.forward(*context_, group_, step, kv_.view(slots));
  sampler_.run(*context_, normed, step, inputs_.samples(), slots, slots_.bias(), choice);
}

template <typename T, Device D>
void DeviceEngine<T, D>::run_decode(const BatchPlan& plan, const SampleChoice& choice,
                                    std::int32_t bucket) {
  if (plan.decode_slots.empty()) return;
  const bool plain = choice.mode == SampleMode::kBest && !choice.process_logits && !choice.logprobs;
  if (!plain) {
    run_rows(choice);
    return;
  }
  Graph<D>& graph = decode_graphs_[bucket];
  if (!graph) graph = Graph<D>::capture(*context_, [this] { run_rows(SampleChoice{}); });
  graph.launch(context_->compute());
}

template <typename T, Device D>
void DeviceEngine<T, D>::read_back(const BatchPlan& plan, std::int32_t padded_decode) {
  Pending pending;
  pending.step = plan.step;
  pending.decode = static_cast<std::int32_t>(plan.decode_slots.size());
  pending.padded_decode = padded_decode;
  pending.samples = inputs_.samples().num_samples;
  pending.logprobs = plan.logprobs;
  pending.turn = turn_;
  Readback& readback = readback_[turn_];
  turn_ ^= 1;
  if (pending.samples > 0) {
    copy_to_host(*context_, readback.tokens.data(), sampler_.tokens().data(), pending.samples * 4);
    if (pending.logprobs)
      copy_to_host(*context_, readback.logprobs.data(), sampler_.logprobs().data(),
                   pending.samples * (1 + kernels::kMaxLogprobs) *
                       static_cast<std::int64_t>(sizeof(kernels::TokenLogprob)));
  }
  readback.done.record(context_->compute());
  pending_.push_back(pending);
}

template <typename T, Device D>
StepOutput DeviceEngine<T, D>::collect() {
  TANDEM_ASSERT(!pending_.empty(), "nothing was submitted");
  const Pending pending = pending_.front();
  pending_.pop_front();
  Readback& readback = readback_[pending.turn];
  readback.done.synchronize();
  StepOutput output;
  output.step = pending.step;
  constexpr std::int32_t kLogprobs = 1 + kernels::kMaxLogprobs;
  for (std::int32_t i = 0; i < pending.samples; ++i) {
    if (i >= pending.decode && i < pending.padded_decode) continue;  // padding rows
    output.tokens.push_back(readback.tokens[i]);
    if (pending.logprobs)
      output.logprobs.insert(output.logprobs.end(), readback.logprobs.data() + i * kLogprobs,
                             readback.logprobs.data() + (i + 1) * kLogprobs);
  }
  return output;
}

}  // namespace tandem::runtime
