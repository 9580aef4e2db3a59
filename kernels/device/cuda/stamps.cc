// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/stamps.h"

#include <algorithm>

#include "kernels/device/annotate.h"
#include "kernels/device/cuda/stamp.h"

namespace tandem {
namespace {

constexpr int kMaxStamps = 1 << 14;
constexpr int kFirst = 0, kLast = 1, kOps = 2;  ///< Places: the step's ends, then its ops'.
constexpr int kLayerStride = 8;
constexpr int kUnstampedStride = 8;

}  // namespace

Stamps<Cuda>::Stamps(Context<Cuda>& ctx, Recorder* recorder) : host_(recorder) {
  if (host_ == nullptr) return;
  device_ = Buffer<std::uint64_t, Cuda>(kMaxStamps);
  for (auto& buffer : read_) buffer = HostBuffer<std::uint64_t, Cuda>(kMaxStamps);
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
    copy_to_host(ctx, read_[0].data(), device_.data(), sizeof(std::uint64_t));
    ctx.compute().synchronize();
    best = {begin + (end - begin) / 2, static_cast<std::int64_t>(read_[0][0])};
  }
  return best;
}

bool Stamps<Cuda>::begin_step(Context<Cuda>& ctx, int turn) {
  if (host_ == nullptr) return false;
  turn_ = turn;
  Step& step = steps_[turn_];
  step = {true, host_->step(), nullptr, host_->work()};
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
  depth_ = 0;
  last_ = -1;
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
  enqueue_stamp(*ctx_, device_.data() + last_);
  return last_;
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
  // An op begins where the one before it ended; a collective inside another op does not.
  const bool inside = depth_ > 0 && is_collective(activity);
  const int begin = last_ < 0 || inside ? place() : last_;
  list_->ops.push_back({activity, layer_, work, begin, begin});
  annotate_begin(name(activity));
  ++depth_;
  return static_cast<std::int64_t>(list_->ops.size()) - 1;
}

void Stamps<Cuda>::end(std::int64_t op) {
  if (op == Recorder::kNone) return;
  if (op == handed_from_) {
    op = handed_to_;
    handed_from_ = Recorder::kNone;
  }
  list_->ops[static_cast<std::size_t>(op)].end = place();
  annotate_end();
  --depth_;
}

std::uint64_t* Stamps<Cuda>::reserve() {
  if (skipping_ != Recorder::kNone || depth_ == 0) return nullptr;
  TANDEM_ASSERT(list_->used < kMaxStamps, "more than ", kMaxStamps, " stamps in a step");
  reserved_ = list_->used++;
  return device_.data() + reserved_;
}

void Stamps<Cuda>::hand_over(Activity activity, const OpWork& work) {
  handed_from_ = static_cast<std::int64_t>(list_->ops.size()) - 1;
  handed_to_ = handed_from_ + 1;
  list_->ops.back().end = reserved_;
  list_->ops.push_back({activity, layer_, work, reserved_, reserved_});
}

void Stamps<Cuda>::end_unstamped_layers() {
  if (skipping_ == Recorder::kNone) return;
  list_->ops[static_cast<std::size_t>(skipping_)].end = place();
  skipping_ = Recorder::kNone;
  skipped_layer_ = -1;
}

void Stamps<Cuda>::end_step(Context<Cuda>& ctx) {
  if (host_ == nullptr) return;
  enqueue_stamp(ctx, device_.data() + kLast);
  const Step& step = steps_[turn_];
  const int used = step.list == nullptr ? kOps : step.list->used;
  copy_to_host(ctx, read_[turn_].data(), device_.data(),
               used * static_cast<std::int64_t>(sizeof(std::uint64_t)));
}

void Stamps<Cuda>::collect(int turn) {
  Step& step = steps_[turn];
  if (host_ == nullptr || !step.recorded) return;
  step.recorded = false;
  const auto at = [&](int place) { return static_cast<std::int64_t>(read_[turn][place]); };
  TimeSpan span;
  span.step = step.step;
  span.lane = Lane::kCompute;
  if (step.list == nullptr) {
    span.activity = Activity::kLayers;
    span.begin_ns = at(kFirst);
    span.end_ns = at(kLast);
    spans_.push_back(span);
    return;
  }
  for (const Op& op : step.list->ops) {
    span.activity = op.activity;
    span.layer = op.layer;
    span.begin_ns = at(op.begin);
    span.end_ns = at(op.end);
    const OpWork least = op.work.in_step(step.work);
    span.bytes = least.bytes;
    span.flops = least.flops;
    spans_.push_back(span);
  }
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
