// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/decode_choice.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cold_timer.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/log.h"

namespace tandem::kernels {
namespace {

#include "kernels/cuda_revision.inc"

constexpr std::int64_t kUntimedRows = 2;  // up to these the streaming kernel is taken untimed

/// The part of its time by which the skinny kernel has to be the faster of ours to be taken. What
/// is timed are plain products; gate and up, to which the activation is fused, take the streaming
/// kernel 4 to 5 % less on an H200 where these are equal (4 and 8 rows, Llama-3-8B, TP 1 and 2).
constexpr std::uint64_t kSkinnyMargin = 25;

/// What it is worth that the next kernel is part of this one, as seen in chains of a layer. Behind
/// logits only up to 8 rows are searched by the same kernel; from 33 rows on the library's own tail
/// hides it.
float fused_gain_us(const MatmulShape& shape) {
  if (shape.out == DType::kF32) return shape.m <= kGemvMaxRows ? 1.5f : 0.0f;
  return shape.m > 32 ? 0.0f : 3.0f;
}

std::uint64_t nanoseconds(float us) {
  return static_cast<std::uint64_t>(std::llround(double{us} * 1000));
}

}  // namespace

const char* cuda_revision() { return kCudaRevision; }

std::optional<DecodeKernel> DecodeChoice::kept(const MatmulShape& shape) const {
  const auto times = times_.find(shape);
  if (!times) return std::nullopt;
  const auto [gemv, skinny, library] = *times;
  const bool takes_skinny = skinny > 0 && (gemv == 0 || skinny + skinny / kSkinnyMargin < gemv);
  const std::uint64_t own = gemv == 0 || skinny == 0 ? gemv + skinny : std::min(gemv, skinny);
  if (own == 0 || own > library + nanoseconds(fused_gain_us(shape))) return DecodeKernel::kLibrary;
  return takes_skinny ? DecodeKernel::kSkinny : DecodeKernel::kGemv;
}

DecodeKernel DecodeChoice::kernel(Context<Cuda>& ctx, bool tuning, const MatmulShape& shape,
                                  const void* x, const void* w, void* y) {
  if (const auto choice = kept(shape)) return *choice;
  if (!tuning || ctx.compute().capturing())
    return shape.m <= kUntimedRows && can_gemv(ctx, shape, x, w) ? DecodeKernel::kGemv
                                                                 : DecodeKernel::kLibrary;
  ColdTimer timer(ctx);
  const auto library = timer.median_us([&] {
    ctx.cublaslt().matmul(ctx, shape, x, w, y);
    return true;
  });
  const auto own = [&](DecodeKernel kernel) {
    const auto us = timer.median_us([&] { return launch_streaming(ctx, kernel, shape, x, w, y); });
    return us ? std::max<std::uint64_t>(nanoseconds(*us), 1) : 0;
  };
  const std::uint64_t gemv = own(DecodeKernel::kGemv), skinny = own(DecodeKernel::kSkinny);
  log_debug("matmul m ", shape.m, " n ", shape.n, " k ", shape.k, ": streaming ", gemv,
            " ns, skinny ", skinny, " ns (0: cannot), cuBLASLt ", *library, " us");
  times_.insert(shape, {gemv, skinny, nanoseconds(*library)});
  times_.save();
  ++num_timed_;
  return *kept(shape);
}

}  // namespace tandem::kernels
