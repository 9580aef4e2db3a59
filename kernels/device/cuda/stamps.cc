// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/stamps.h"

#include <algorithm>

#include "kernels/device/annotate.h"
#include "kernels/device/cuda/stamp.h"
#include "kernels/device/fence_costs.h"

namespace tandem {
namespace {

constexpr int kMaxStamps = 1 << 14;
constexpr int kMaxTileWaits = 1 << 10;
constexpr int kFirst = 0, kLast = 1, kOps = 2;  ///< Places: the step's ends, then its ops'.
constexpr int kLayerStride = 8;
constexpr int kUnstampedStride = 8;

}  // namespace

Stamps<Cuda>::Stamps(Context<Cuda>& ctx, Recorder* recorder) : host_(recorder) {
  if (host_ == nullptr) return;
  device_ = Buffer<StampTimes, Cuda>(kMaxStamps);
  lines_ = Buffer<std::uint32_t, Cuda>(wide_stamp_words(ctx));
  tiles_ = Buffer<TileWaits, Cuda>(kMaxTileWaits);
  for (auto& buffer : read_) buffer = HostBuffer<StampTimes, Cuda>(kMaxStamps);
  for (auto& buffer : read_tiles_) buffer = HostBuffer<TileWaits, Cuda>(kMaxTileWaits);
  first_ = compare_clocks(ctx);
}

/// The GPU's clock lies between the launch and the end of the wait; the shortest of many wins.
Stamps<Cuda>::Moment Stamps<Cuda>::compare_clocks(Context<Cuda>& ctx) {
  Moment best;
  std::int64_t shortest = INT64_MAX;
  for (int i = 0; i < 64; ++i) {
    ctx.compute().synchronize();
    const std::int64_t begin = Recorder::now_ns();
    enqueue_stamp(ctx, device_.data());
    ctx.compute().synchronize();
    const std::int64_t end = Recorder::now_ns();
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    copy_to_host(ctx, read_[0].data(), device_.data(), sizeof(StampTimes));
    ctx.compute().synchronize();
    best = {begin + (end - begin) / 2, static_cast<std::int64_t>(read_[0][0].passed)};
  }
  return best;
}

bool Stamps<Cuda>::begin_step(Context<Cuda>& ctx, int turn) {
  if (host_ == nullptr) return false;
  turn_ = turn;
  Step& step = steps_[turn_];
  step = {!host_->paused(), host_->step(), nullptr, host_->work()};
  if (!step.recorded) return false;
  const bool stamped = ++num_steps_ % kUnstampedStride != 0;
  host_->set_stamped(stamped);
  enqueue_stamp(ctx, device_.data() + kFirst);
  return stamped;
}

void Stamps<Cuda>::open(Context<Cuda>& ctx, List& list, bool all_layers) {
  ctx_ = &ctx;
  list_ = &list;
  list = {{}, kOps};
  all_layers_ = all_layers;
  kernels_before_.clear();
  last_ = -1;
  if (all_layers) fill_zero(ctx, tiles_.data(), tiles_.size_bytes());
  ctx.record_to(this);
}

void Stamps<Cuda>::close() {
  end_unstamped_layers();
  ctx_->record_to(nullptr);
  ctx_ = nullptr;
  list_ = nullptr;
}

int Stamps<Cuda>::place() {
  TANDEM_ASSERT(list_->used < kMaxStamps, "more than ", kMaxStamps, " stamps in a step");
  last_ = list_->used++;
  enqueue_wide_stamp(*ctx_, device_.data() + last_, lines_.span());
  return last_;
}

/// A stamp of its own behind that which ended the op before.
int Stamps<Cuda>::begin_place(Activity activity) {
  const int before = last_;
  const int begin = place();
  // A collective inside of another op follows kernels of that op.
  if (before >= 0 && (kernels_before_.empty() || !is_collective(activity)))
    list_->ops.push_back({Activity::kStamps, -1, {}, before, begin});
  return begin;
}

std::int64_t Stamps<Cuda>::begin(Activity activity, const OpWork& work) {
  if (!all_layers_ && layer_ >= 0 && layer_ % kLayerStride != 0) {
    if (skipping_ == Recorder::kNone) {
      skipping_ = static_cast<std::int64_t>(list_->ops.size());
      list_->ops.push_back({Activity::kLayers, 0, {}, last_ < 0 ? place() : last_, 0});
    }
    if (layer_ != skipped_layer_) ++list_->ops[static_cast<std::size_t>(skipping_)].layer;
    skipped_layer_ = layer_;
    return Recorder::kNone;
  }
  end_unstamped_layers();
  const int begin = begin_place(activity);
  list_->ops.push_back({activity, layer_, work, begin, begin});
  annotate_begin(name(activity));
  kernels_before_.push_back(ctx_->num_kernels());
  if (host_->probe) host_->probe(activity, layer_);
  return static_cast<std::int64_t>(list_->ops.size()) - 1;
}

void Stamps<Cuda>::end(std::int64_t op) {
  if (op == Recorder::kNone) return;
  if (op == handed_from_) {
    op = handed_to_;
    handed_from_ = Recorder::kNone;
  }
  Op& ended = list_->ops[static_cast<std::size_t>(op)];
  const std::int64_t kernels = ctx_->num_kernels() - kernels_before_.back();
  ended.kernels = static_cast<int>(kernels);
  ended.end = place();
  annotate_end();
  kernels_before_.pop_back();
  // Those of an op inside of another, with its stamps, are none of that one's.
  if (!kernels_before_.empty()) kernels_before_.back() += kernels + 2;
}

std::uint64_t* Stamps<Cuda>::reserve() {
  if (skipping_ != Recorder::kNone || kernels_before_.empty()) return nullptr;
  TANDEM_ASSERT(list_->used < kMaxStamps, "more than ", kMaxStamps, " stamps in a step");
  reserved_ = list_->used++;
  return &device_.data()[reserved_].passed;
}

void Stamps<Cuda>::hand_over(Activity activity, const OpWork& work) {
  handed_from_ = static_cast<std::int64_t>(list_->ops.size()) - 1;
  handed_to_ = handed_from_ + 1;
  list_->ops.back().end = reserved_;
  list_->ops.push_back({activity, layer_, work, reserved_, reserved_, 0, 0});
}

TileWaits* Stamps<Cuda>::tile_waits() {
  if (!all_layers_ || kernels_before_.empty() || list_->tiles == kMaxTileWaits) return nullptr;
  list_->ops.back().tiles = list_->tiles;
  return tiles_.data() + list_->tiles++;
}

void Stamps<Cuda>::end_unstamped_layers() {
  if (skipping_ == Recorder::kNone) return;
  list_->ops[static_cast<std::size_t>(skipping_)].end = place();
  skipping_ = Recorder::kNone;
  skipped_layer_ = -1;
}

void Stamps<Cuda>::end_step(Context<Cuda>& ctx) {
  const Step& step = steps_[turn_];
  if (host_ == nullptr || !step.recorded) return;
  enqueue_stamp(ctx, device_.data() + kLast);
  const List* list = step.list;
  copy_to_host(
      ctx, read_[turn_].data(), device_.data(),
      (list == nullptr ? kOps : list->used) * static_cast<std::int64_t>(sizeof(StampTimes)));
  if (list != nullptr && list->tiles > 0)
    copy_to_host(ctx, read_tiles_[turn_].data(), tiles_.data(),
                 list->tiles * static_cast<std::int64_t>(sizeof(TileWaits)));
}

void Stamps<Cuda>::collect(int turn) {
  Step& step = steps_[turn];
  if (host_ == nullptr || !step.recorded) return;
  step.recorded = false;
  TimeSpan span;
  span.step = step.step;
  span.lane = Lane::kCompute;
  if (step.list != nullptr) return add_spans(*step.list, turn, span, step.work);
  span.activity = Activity::kLayers;
  span.begin_ns = static_cast<std::int64_t>(read_[turn][kFirst].passed);
  span.end_ns = static_cast<std::int64_t>(read_[turn][kLast].passed);
  spans_.push_back(span);
}

void Stamps<Cuda>::add_spans(const List& list, int turn, TimeSpan span, const StepWork& work) {
  const auto at = [&](int place) { return static_cast<std::int64_t>(read_[turn][place].passed); };
  const auto share = [&](int tiles) {
    const TileWaits& counted = read_tiles_[turn][tiles];
    const auto waited = static_cast<float>(counted.query + counted.key + counted.value);
    return counted.total == 0 ? 0.0f : waited / static_cast<float>(counted.total);
  };
  const std::size_t first = spans_.size();
  for (const Op& op : list.ops) {
    span.activity = op.activity;
    span.layer = op.layer;
    span.begin_ns = at(op.begin);
    span.end_ns = at(op.end);
    span.kernels = static_cast<std::int16_t>(op.kernels);
    span.stamps = static_cast<std::int16_t>(op.stamps);
    span.tile_share = op.tiles < 0 ? 0.0f : share(op.tiles);
    // A second stamp that came late was launched late: there is no span, as between launches.
    if (op.activity == Activity::kStamps &&
        static_cast<std::int64_t>(read_[turn][op.end].started) > span.begin_ns)
      continue;
    const OpWork least = op.work.in_step(work);
    span.bytes = least.bytes;
    span.flops = least.flops;
    spans_.push_back(span);
  }
  tell_fence_costs(spans_, first);
}

void Stamps<Cuda>::finish(Context<Cuda>& ctx) {
  if (host_ == nullptr) return;
  const Moment last = compare_clocks(ctx);
  const double device_ns = static_cast<double>(last.device_ns - first_.device_ns);
  const double rate =
      device_ns > 0 ? static_cast<double>(last.host_ns - first_.host_ns) / device_ns : 1.0;
  const auto on_host = [&](std::int64_t device) {
    return first_.host_ns +
           static_cast<std::int64_t>(static_cast<double>(device - first_.device_ns) * rate);
  };
  for (TimeSpan span : spans_) {
    span.begin_ns = on_host(span.begin_ns);
    span.end_ns = on_host(span.end_ns);
    host_->add(span);
  }
  spans_.clear();
}

}  // namespace tandem
