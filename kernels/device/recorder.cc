// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/recorder.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "kernels/device/annotate.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

constexpr std::array<const char*, kNumActivities> kNames = {
    "embed",       "qkv_project", "attend",      "attention_output",
    "gate_up_act", "mlp_down",    "add_norm",    "head",
    "sample",      "slots",       "copy_chunks", "layers",
    "stamps",      "all_reduce",  "all_gather",  "schedule",
    "deliver",     "send_plan",   "await_plan",  "compare",
    "submit",      "collect",     "map",         "idle"};

/// Keys that a row at `position` sees.
double visible(std::int64_t position, std::int32_t window) {
  const std::int64_t all = position + 1;
  return static_cast<double>(window > 0 ? std::min<std::int64_t>(all, window) : all);
}

/// Sum of `visible` over positions [begin, end).
double visible_sum(std::int64_t begin, std::int64_t end, std::int32_t window) {
  const auto triangle = [](std::int64_t n) { return 0.5 * static_cast<double>(n) * (n + 1); };
  if (window <= 0) return triangle(end) - triangle(begin);
  const std::int64_t edge = std::clamp<std::int64_t>(window, begin, end);
  return triangle(edge) - triangle(begin) + static_cast<double>(end - edge) * window;
}

}  // namespace

const char* name(Activity activity) { return kNames[static_cast<std::size_t>(activity)]; }

double StepWork::kv_tokens(std::int32_t window) const {
  double sum = 0;
  for (const std::int32_t length : decode_lengths) sum += visible(length - 1, window);
  for (const Segment& segment : segments) {
    const std::int64_t end = std::int64_t{segment.begin} + segment.tokens;
    const std::int64_t first =
        window > 0 ? std::max<std::int64_t>(0, std::int64_t{segment.begin} + 1 - window) : 0;
    sum += static_cast<double>(end - first);
  }
  return sum;
}

double StepWork::pairs(std::int32_t window) const {
  double sum = 0;
  for (const std::int32_t length : decode_lengths) sum += visible(length - 1, window);
  for (const Segment& segment : segments)
    sum += visible_sum(segment.begin, std::int64_t{segment.begin} + segment.tokens, window);
  return sum;
}

std::int64_t StepWork::rows() const {
  auto sum = static_cast<std::int64_t>(decode_lengths.size());
  for (const Segment& segment : segments) sum += segment.tokens;
  return sum;
}

OpWork OpWork::in_step(const StepWork& step) const {
  OpWork work;
  work.bytes = bytes;
  work.flops = flops;
  if (bytes_per_kv_token <= 0) return work;
  const double all = static_cast<double>(std::max<std::int64_t>(step.rows(), 1));
  const double share = std::min(1.0, static_cast<double>(rows) / all);
  work.bytes += share * bytes_per_kv_token * step.kv_tokens(window);
  work.flops += share * flops_per_pair * step.pairs(window);
  return work;
}

Recorder::Recorder(std::size_t max_spans) : max_spans_(max_spans) {
  spans_.reserve(max_spans);  // touched when used; moving them would be a wait in some step
}

std::int64_t Recorder::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Recorder::begin_step(const StepRecord& step, StepWork work) {
  work_ = std::move(work);
  if (spans_.size() < max_spans_ && !paused_) steps_.push_back(step);
}

bool Recorder::full() {
  if (spans_.size() < max_spans_) return false;
  ++dropped_;
  return true;
}

std::int64_t Recorder::begin(Activity activity, const OpWork& work) {
  if (paused_ || full()) return kNone;
  annotate_begin(name(activity));
  TimeSpan span;
  span.activity = activity;
  span.lane = is_op(activity) ? Lane::kCompute : Lane::kHost;
  span.step = step();
  span.layer = layer_;
  const OpWork least = work.in_step(work_);
  span.bytes = least.bytes;
  span.flops = least.flops;
  span.begin_ns = now_ns();
  spans_.push_back(span);
  if (probe) probe(activity, layer_);
  return static_cast<std::int64_t>(spans_.size()) - 1;
}

void Recorder::end(std::int64_t span) {
  if (span == kNone) return;
  spans_[static_cast<std::size_t>(span)].end_ns = now_ns();
  annotate_end();
}

void Recorder::add(const TimeSpan& span) {
  if (!full()) spans_.push_back(span);
}

}  // namespace tandem
