// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cold_timer.h"

#include <algorithm>
#include <vector>

namespace tandem::kernels {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{128} << 20;  // more than the 60 MB L2 of an H200
constexpr int kTimedRuns = 5;

}  // namespace

ColdTimer::ColdTimer(Context<Cuda>& ctx)
    : ctx_(ctx), flush_(ctx.temporary(static_cast<std::size_t>(kFlushBytes))) {}

std::optional<float> ColdTimer::median_us(const std::function<bool()>& body) {
  std::vector<float> times;
  for (int run = 0; run <= kTimedRuns; ++run) {  // run 0 warms up: its time is not kept
    fill_zero(ctx_, flush_.as<void>(), kFlushBytes);
    start_.record(ctx_.compute());
    if (!body()) return std::nullopt;
    stop_.record(ctx_.compute());
    stop_.synchronize();
    if (run > 0) times.push_back(stop_.milliseconds_since(start_) * 1000.0f);
  }
  std::nth_element(times.begin(), times.begin() + kTimedRuns / 2, times.end());
  return times[kTimedRuns / 2];
}

}  // namespace tandem::kernels
