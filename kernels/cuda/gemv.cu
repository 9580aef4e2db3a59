// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.h"

#include "kernels/cuda/gemv.cuh"

namespace tandem::kernels {

bool gemv_fits(Context<Cuda>& ctx, const void* x, std::int64_t x_stride, std::int64_t m,
               const void* w, std::int64_t k) {
  constexpr std::int64_t kMaxShared = 216 << 10;  // of 227 KB; the sums take 8
  return ctx.options().decode_matmul == DecodeMatmul::kAuto && m >= 1 && m <= kGemvMaxRows &&
         k % 8 == 0 && x_stride % 8 == 0 && aligned_to(x, 16) && aligned_to(w, 16) &&
         static_cast<std::int64_t>(gemv_shared_bytes(static_cast<int>(m), static_cast<int>(k))) <=
             kMaxShared;
}

template <typename T, typename Out>
bool gemv(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
          float scale, float softcap) {
  if (!gemv_fits(ctx, x.data, x.stride, x.rows, w, x.cols)) return false;
  const GemvStore<cuda_t<Out>> store{to_cuda(y.data), y.stride, scale, softcap};
  launch_gemv<GemvRows>(ctx, to_cuda(x.data), x.stride, x.rows, to_cuda(w), y.cols, x.cols, store);
  return true;
}

template bool gemv(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                   TensorView<BFloat16, Cuda>, float, float);
template bool gemv(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                   TensorView<float, Cuda>, float, float);
template bool gemv(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                   TensorView<Float16, Cuda>, float, float);
template bool gemv(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                   TensorView<float, Cuda>, float, float);

}  // namespace tandem::kernels
