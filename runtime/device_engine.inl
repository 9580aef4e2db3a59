// SPDX-License-Identifier: Apache-2.0
// Bodies of DeviceEngine; included once per device by runtime/engine_<device>.cc.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <set>

#include "runtime/decoder.inl"
#include "runtime/device_engine.h"
#include "runtime/head_sampler.inl"

namespace tandem::runtime {

/// The graph that a step of `rows` sequences replays. A CPU graph costs nothing to make, so there
/// is no padding.
inline DecodeBucket decode_bucket(Cpu, const EngineLimits&, std::int32_t rows,
                                  std::int32_t max_kv_tokens) {
  return {rows, max_kv_tokens};
}

/// Bounds of KV lengths that a decode graph is captured for: those that attention tells apart, and
/// the longest there may be.
inline constexpr std::int32_t kDecodeKvBounds[] = {kernels::kDecodeLongTokens,
                                                   kernels::kDecodeVeryLongTokens,
                                                   std::numeric_limits<std::int32_t>::max()};

/// Rows: 1, 2, then steps of 4 up to 16, of 8 up to 32, of 16 up to 64, of 32 above.
inline DecodeBucket decode_bucket(Cuda, const EngineLimits& limits, std::int32_t rows,
                                  std::int32_t max_kv_tokens) {
  const std::int32_t step = rows <= 2 ? 1 : rows <= 16 ? 4 : rows <= 32 ? 8 : rows <= 64 ? 16 : 32;
  const std::int32_t bound =
      *std::lower_bound(std::begin(kDecodeKvBounds), std::end(kDecodeKvBounds), max_kv_tokens);
  return {std::min((rows + step - 1) / step * step, limits.max_num_seqs),
          std::min(bound, limits.max_model_len)};
}

template <typename T, Device D>
DeviceEngine<T, D>::DeviceEngine(Parts parts)
    : limits_(parts.limits),
      context_(std::move(parts.context)),
      communicator_(std::move(parts.communicator)),
      group_{parts.rank, parts.size, communicator_.get(), nullptr, parts.progress},
      model_(std::move(parts.model)),
      slots_(*context_, limits_),
      kv_({static_cast<std::int32_t>(model_.config.num_layers()),
           static_cast<std::int32_t>(model_.shard.kv_heads().size()),
           static_cast<std::int32_t>(model_.config.head_dim), static_cast<std::int32_t>(sizeof(T))},
          limits_.num_chunks, parts.kv_segment_bytes),
      inputs_(limits_),
      decoder_(model_, limits_.max_num_batched_tokens),
      sampler_(*context_, model_, group_, limits_.max_num_seqs, limits_.max_num_batched_tokens),
      overlap_min_tokens_(parts.overlap_min_tokens),
      use_graphs_(parts.use_graphs),
      recorder_(parts.recorder),
      stamps_(*context_, recorder_) {
  kv_.grow_to(limits_.mapped_chunks);
  for (Readback& readback : readback_) {
    readback.tokens = HostBuffer<std::int32_t, D>(limits_.max_num_seqs);
    readback.logprobs = HostBuffer<kernels::TokenLogprob, D>(std::int64_t{limits_.max_num_seqs} *
                                                             (1 + kernels::kMaxLogprobs));
    readback.scores = HostBuffer<kernels::TokenLogprob, D>(
        std::int64_t{limits_.max_num_batched_tokens} * (1 + kernels::kMaxLogprobs));
  }
}

template <typename T, Device D>
void DeviceEngine<T, D>::submit(const BatchPlan& plan) {
  TANDEM_ASSERT(pending_.size() < 2, "more than two steps in flight");
  if (plan.mapped_chunks > kv_.mapped_chunks()) {
    const PhaseScope mapping(recorder_, Activity::kMap);
    kv_.grow_to(plan.mapped_chunks);
  }
  slots_.apply(*context_, plan);
  copy_chunks(plan);
  const SampleChoice choice{plan.sample_mode, plan.process_logits, plan.logprobs};
  const auto decode = static_cast<std::int32_t>(plan.decode_slots.size());
  if (plan.segments.empty()) {
    const DecodeBucket bucket = decode_bucket(D{}, limits_, decode, plan.max_kv_tokens);
    const bool other_rows = inputs_.upload(*context_, plan, bucket.rows, bucket.max_kv_tokens);
    rows_ready_ = rows_ready_ && !other_rows && plan.inits.empty();
    if (decode > 0) run_decode(choice, bucket);
    read_back(plan, bucket.rows);
  } else {
    inputs_.upload(*context_, plan, decode, plan.max_kv_tokens);
    rows_ready_ = false;
    run_eager(choice, plan.num_tokens() >= overlap_min_tokens_,
              stamps_.begin_step(*context_, turn_));
    read_back(plan, decode);
  }
}

template <typename T, Device D>
void DeviceEngine<T, D>::copy_chunks(const BatchPlan& plan) {
  if (plan.chunk_copies.empty()) return;
  const OpTimer timer(*context_, Activity::kCopyChunks, [&] {
    const auto chunks = static_cast<std::int64_t>(plan.chunk_copies.size());
    return kernels::rows_work<T>(chunks, kv_.geometry().chunk_stride(), 2);
  });
  for (const ChunkCopy& copy : plan.chunk_copies)
    copy_on_device(*context_, kv_.chunk(copy.to), kv_.chunk(copy.from),
                   kv_.geometry().chunk_bytes());
}

/// Fills the decode rows from their slots, but where the step before has done that.
template <typename T, Device D>
void DeviceEngine<T, D>::begin_rows() {
  if (rows_ready_) return;
  const OpTimer timer(*context_, Activity::kSlots, [] { return OpWork{}; });
  kernels::begin_step(*context_, inputs_.begin(slots_.view()));
  rows_ready_ = inputs_.rows().whole.step.num_segments == 0;
}

/// Everything between the step's rows and the sampled tokens; what a decode graph holds.
template <typename T, Device D>
void DeviceEngine<T, D>::run_rows(const SampleChoice& choice, bool overlapped) {
  StepRows<D> rows = inputs_.rows();
  rows.overlapped = overlapped && group_.size > 1 && rows.halves[1].step.num_tokens > 0;
  const kernels::SlotView<D> slots = slots_.view();
  const auto scores = inputs_.scores();
  const bool all_rows = scores.count > 0;
  const auto normed =
      decoder_.forward(*context_, group_, rows, inputs_.samples(), all_rows, kv_.view(slots));
  const OpTimer timer(*context_, Activity::kSample, [&] {
    return kernels::rows_work<float>(inputs_.samples().num_samples, sampler_.shard_width(), 1);
  });
  sampler_.score(*context_, normed, scores.count, scores.rows, scores.targets);
  sampler_.run(*context_, normed, decoder_.final_norm(), all_rows, inputs_.end(slots),
               slots_.bias(), choice);
}

template <typename T, Device D>
void DeviceEngine<T, D>::set_trial(const PrefillTrial& trial) {
  decoder_.set_trial(trial);
  if (communicator_ != nullptr && trial.shared_domain != shared_domain_)
    communicator_->separate_domains(*context_, !trial.shared_domain);
  shared_domain_ = trial.shared_domain;
}

template <typename T, Device D>
double DeviceEngine<T, D>::time_prefill(std::int32_t tokens, bool overlapped) {
  BatchPlan plan;
  PrefillSegment segment;
  segment.begin = -tokens;
  segment.tokens.resize(static_cast<std::size_t>(tokens));
  plan.segments.push_back(std::move(segment));
  inputs_.upload(*context_, plan, 0, 1);
  rows_ready_ = false;
  context_->compute().synchronize();
  const auto start = std::chrono::steady_clock::now();
  begin_rows();
  run_rows(SampleChoice{}, overlapped);
  context_->compute().synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <typename T, Device D>
void DeviceEngine<T, D>::run_eager(const SampleChoice& choice, bool overlapped, bool stamped) {
  const auto body = [&] {
    begin_rows();
    run_rows(choice, overlapped);
  };
  if (!stamped) return body();
  stamps_.into(*context_, stamps_.eager_list(), true, body);
  stamps_.use(stamps_.eager_list());
}

template <typename T, Device D>
void DeviceEngine<T, D>::run_decode(const SampleChoice& choice, DecodeBucket bucket) {
  const bool plain = choice.mode == SampleMode::kBest && !choice.process_logits && !choice.logprobs;
  const bool stamped = stamps_.begin_step(*context_, turn_);
  if (!plain || !use_graphs_) return run_eager(choice, false, stamped);
  begin_rows();
  if (stamped) {
    StampedGraph& entry = stamped_graphs_[bucket];
    if (!entry.graph)
      entry.graph = Graph<D>::capture(*context_, [&] {
        stamps_.into(*context_, entry.list, false, [this] { run_rows(SampleChoice{}); });
      });
    entry.graph.launch(context_->compute());
    stamps_.use(entry.list);
    return;
  }
  Graph<D>& graph = decode_graphs_[bucket];
  if (!graph) graph = Graph<D>::capture(*context_, [this] { run_rows(SampleChoice{}); });
  graph.launch(context_->compute());
}

template <typename T, Device D>
void DeviceEngine<T, D>::capture_decode_graphs() {
  if (!use_graphs_) return;
  std::set<DecodeBucket> buckets;
  for (const std::int32_t kv : kDecodeKvBounds)
    for (std::int32_t rows = 1; rows <= limits_.max_num_seqs; ++rows)
      buckets.insert(decode_bucket(D{}, limits_, rows, std::min(kv, limits_.max_model_len)));
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    // Rows without a sequence: all kernels run once, so nothing is tuned or loaded in a capture.
    inputs_.upload(*context_, BatchPlan{}, bucket->rows, bucket->max_kv_tokens);
    kernels::begin_step(*context_, inputs_.begin(slots_.view()));
    run_rows(SampleChoice{});
    sampler_.ran();
    context_->compute().synchronize();
    decode_graphs_[*bucket] = Graph<D>::capture(*context_, [this] { run_rows(SampleChoice{}); });
  }
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
  if (pending.samples > 0 && pending.logprobs)
    copy_to_host(*context_, readback.logprobs.data(), sampler_.logprobs().data(),
                 pending.samples * (1 + kernels::kMaxLogprobs) *
                     static_cast<std::int64_t>(sizeof(kernels::TokenLogprob)));
  pending.scores = inputs_.scores().count;
  if (pending.scores > 0)
    copy_to_host(*context_, readback.scores.data(), sampler_.scores().data(),
                 pending.scores * (1 + kernels::kMaxLogprobs) *
                     static_cast<std::int64_t>(sizeof(kernels::TokenLogprob)));
  stamps_.end_step(*context_);
  // The next step does not wait for the tokens' way to the host: it writes others.
  ran_.record(context_->compute());
  ran_.block(context_->copy());
  if (pending.samples > 0) {
    sampler_.ran();
    copy_to_host(context_->copy(), readback.tokens.data(), sampler_.tokens(), pending.samples * 4);
  }
  readback.done.record(context_->copy());
  pending_.push_back(pending);
}

template <typename T, Device D>
StepOutput DeviceEngine<T, D>::collect() {
  TANDEM_ASSERT(!pending_.empty(), "nothing was submitted");
  const Pending pending = pending_.front();
  pending_.pop_front();
  Readback& readback = readback_[pending.turn];
  readback.done.synchronize();
  if (abandoned_) throw Error("the job is being ended");
  stamps_.collect(pending.turn);
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
  output.scores.assign(readback.scores.data(), readback.scores.data() + pending.scores * kLogprobs);
  return output;
}

template <typename T, Device D>
std::string DeviceEngine<T, D>::device_error() const {
  return communicator_ == nullptr ? std::string() : communicator_->async_error();
}

template <typename T, Device D>
std::optional<comm::DevicePosition> DeviceEngine<T, D>::device_position() const {
  if (communicator_ == nullptr) return std::nullopt;
  auto position = communicator_->position();
  if (position && rows_ != nullptr) {
    const std::uint32_t exchanges = rows_->exchanges();
    position->entered += exchanges;
    position->left += exchanges;
  }
  return position;
}

template <typename T, Device D>
void DeviceEngine<T, D>::abandon() noexcept {
  abandoned_ = true;
  if (communicator_ != nullptr) communicator_->raise_error();
}

}  // namespace tandem::runtime
