// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/decode_choice.h"

#include <cmath>

#include "kernels/cuda/cold_timer.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/log.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kUntimedRows = 2;  // up to these the streaming kernel is taken untimed

/// What it is worth that the next kernel is part of this one, as seen in chains of a layer: logits
/// have none, and from 33 rows on the library's own tail hides it.
float fused_gain_us(const MatmulShape& shape) {
  if (shape.m <= kGemvMaxRows) return 1.5f;
  return shape.out == DType::kF32 || shape.m > 32 ? 0.0f : 3.0f;
}

}  // namespace

bool DecodeChoice::streaming(Context<Cuda>& ctx, bool tuning, const MatmulShape& shape,
                             const void* x, const void* w, void* y) {
  MatmulShape bucket = shape;
  bucket.m = m_bucket(shape.m);
  if (const auto found = chosen_.find(bucket); found != chosen_.end()) return found->second;
  if (!tuning || ctx.compute().capturing()) return shape.m <= kUntimedRows;
  ColdTimer timer(ctx);
  const auto library = timer.median_us([&] {
    ctx.cublaslt().matmul(ctx, shape, x, w, y);
    return true;
  });
  const auto own = timer.median_us([&] { return launch_streaming(ctx, shape, x, w, y); });
  const bool choice = own && *own <= *library + fused_gain_us(shape);
  log_debug("matmul m ", shape.m, " n ", shape.n, " k ", shape.k, ": streaming ", own.value_or(NAN),
            " us, cuBLASLt ", *library, " us");
  return chosen_.emplace(bucket, choice).first->second;
}

}  // namespace tandem::kernels
