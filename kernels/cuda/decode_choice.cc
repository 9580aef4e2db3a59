// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/decode_choice.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/log.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{128} << 20;  // more than L2 holds
constexpr int kTimedRuns = 5;
constexpr std::int64_t kUntimedRows = 2;  // up to these the streaming kernel is taken untimed

/// What it is worth that the next kernel is part of this one, as seen in chains of a layer: logits
/// have none, and from 33 rows on the library's own tail hides it.
float fused_gain_us(const MatmulShape& shape) {
  if (shape.m <= kGemvMaxRows) return 1.5f;
  return shape.out == DType::kF32 || shape.m > 32 ? 0.0f : 3.0f;
}

/// Median time with weights that come from memory.
float time_us(Context<Cuda>& ctx, void* flush, const std::function<void()>& body) {
  std::vector<float> times;
  Event<Cuda> start(true), stop(true);
  for (int run = 0; run <= kTimedRuns; ++run) {  // run 0 warms up
    fill_zero(ctx, flush, kFlushBytes);
    start.record(ctx.compute());
    body();
    stop.record(ctx.compute());
    stop.synchronize();
    if (run > 0) times.push_back(stop.milliseconds_since(start) * 1000.0f);
  }
  std::nth_element(times.begin(), times.begin() + kTimedRuns / 2, times.end());
  return times[kTimedRuns / 2];
}

}  // namespace

bool DecodeChoice::streaming(Context<Cuda>& ctx, bool tuning, const MatmulShape& shape,
                             const void* x, const void* w, void* y) {
  MatmulShape bucket = shape;
  bucket.m = m_bucket(shape.m);
  if (const auto found = chosen_.find(bucket); found != chosen_.end()) return found->second;
  if (!tuning || ctx.compute().capturing()) return shape.m <= kUntimedRows;
  const Temporary flush = ctx.temporary(static_cast<std::size_t>(kFlushBytes));
  const float library =
      time_us(ctx, flush.as<void>(), [&] { ctx.cublaslt().matmul(ctx, shape, x, w, y); });
  bool launched = true;
  const float own =
      time_us(ctx, flush.as<void>(), [&] { launched = launch_streaming(ctx, shape, x, w, y); });
  const bool choice = launched && own <= library + fused_gain_us(shape);
  log_debug("matmul m ", shape.m, " n ", shape.n, " k ", shape.k, ": streaming ", own,
            " us, cuBLASLt ", library, " us");
  return chosen_.emplace(bucket, choice).first->second;
}

}  // namespace tandem::kernels
