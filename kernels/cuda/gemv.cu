// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.h"

#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/cuda/skinny.h"

namespace tandem::kernels {

bool can_stream(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w) {
  if (ctx.options().decode_matmul == DecodeMatmul::kCublasLt) return false;
  if (skinny_fits(shape, x, w)) return true;
  return shape.m >= 1 && gemv_fits(shape.m, shape.k) && shape.k % kGemvStage == 0 &&
         shape.x_stride % 8 == 0 && aligned_to(x, 16) && aligned_to(w, 16);
}

bool streams_weights(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w,
                     void* y) {
  if (!can_stream(ctx, shape, x, w)) return false;
  if (ctx.options().decode_matmul == DecodeMatmul::kStreaming) return true;
  return ctx.cublaslt().prefers_streaming(ctx, shape, x, w, y);
}

bool gemv_fits(std::int64_t m, std::int64_t k) {
  return m <= kGemvMaxRows && gemv_shared_bytes(m, k, kGemvMinDepth) <= kGemvMaxShared;
}

namespace {

template <typename T, typename Out>
bool stream(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w, void* y,
            float scale, float softcap) {
  TensorView<const T, Cuda> from(static_cast<const T*>(x), shape.m, shape.k);
  from.stride = shape.x_stride;
  if (shape.m > kGemvMaxRows) {
    TensorView<Out, Cuda> to(static_cast<Out*>(y), shape.m, shape.n);
    to.stride = shape.y_stride;
    skinny(ctx, from, static_cast<const T*>(w), to, scale, softcap);
    return true;
  }
  const GemvStore<cuda_t<Out>> store{static_cast<cuda_t<Out>*>(y), shape.y_stride, scale, softcap};
  const auto args = gemv_args<T>(from, static_cast<const T*>(w), nullptr);
  launch_gemv<GemvRows>(ctx, args, shape.n, store);
  return true;
}

}  // namespace

bool launch_streaming(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w,
                      void* y) {
  const bool floats = shape.out == DType::kF32;
  if (shape.in == DType::kBF16)
    return floats ? stream<BFloat16, float>(ctx, shape, x, w, y, 1.0f, 0.0f)
                  : stream<BFloat16, BFloat16>(ctx, shape, x, w, y, 1.0f, 0.0f);
  return floats ? stream<Float16, float>(ctx, shape, x, w, y, 1.0f, 0.0f)
                : stream<Float16, Float16>(ctx, shape, x, w, y, 1.0f, 0.0f);
}

template <typename T, typename Out>
bool gemv(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
          float scale, float softcap) {
  const MatmulShape shape = matmul_shape(x, y);
  return streams_weights(ctx, shape, x.data, w, y.data) &&
         stream<T, Out>(ctx, shape, x.data, w, y.data, scale, softcap);
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
