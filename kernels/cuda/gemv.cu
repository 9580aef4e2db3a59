// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.h"

#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/cuda/skinny.h"

namespace tandem::kernels {

bool can_gemv(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w) {
  return ctx.options().decode_matmul != DecodeMatmul::kCublasLt && shape.m >= 1 &&
         shape.m <= kGemvMaxRows &&
         gemv_shared_bytes(shape.m, shape.k, kGemvMinDepth) <= kGemvMaxShared &&
         shape.k % kGemvStage == 0 && shape.x_stride % 8 == 0 && aligned_to(x, 16) &&
         aligned_to(w, 16);
}

bool can_skinny(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w) {
  return ctx.options().decode_matmul != DecodeMatmul::kCublasLt && skinny_fits(shape, x, w);
}

DecodeKernel decode_kernel(Context<Cuda>& ctx, const MatmulShape& shape, const void* x,
                           const void* w, void* y) {
  const bool gemv = can_gemv(ctx, shape, x, w), skinny = can_skinny(ctx, shape, x, w);
  if (!gemv && !skinny) return DecodeKernel::kLibrary;
  switch (ctx.options().decode_matmul) {
    case DecodeMatmul::kStreaming:
      return gemv ? DecodeKernel::kGemv : DecodeKernel::kSkinny;
    case DecodeMatmul::kSkinny:
      return skinny ? DecodeKernel::kSkinny : DecodeKernel::kGemv;
    default:
      return ctx.cublaslt().decode_kernel(ctx, shape, x, w, y);
  }
}

namespace {

template <typename T, typename Out>
bool stream(Context<Cuda>& ctx, DecodeKernel kernel, const MatmulShape& shape, const void* x,
            const void* w, void* y, float scale, float softcap) {
  TensorView<const T, Cuda> from(static_cast<const T*>(x), shape.m, shape.k);
  from.stride = shape.x_stride;
  if (kernel == DecodeKernel::kLibrary) return false;
  if (kernel == DecodeKernel::kSkinny) {
    TensorView<Out, Cuda> to(static_cast<Out*>(y), shape.m, shape.n);
    to.stride = shape.y_stride;
    skinny(ctx, from, static_cast<const T*>(w), to, scale, softcap);
    return true;
  }
  const GemvStore<cuda_t<Out>> store{static_cast<cuda_t<Out>*>(y), shape.y_stride, scale, softcap};
  launch_gemv<GemvRows>(ctx, gemv_args<T>(from, static_cast<const T*>(w), nullptr), shape.n, store);
  return true;
}

template <typename T>
bool stream_plain(Context<Cuda>& ctx, DecodeKernel kernel, const MatmulShape& shape, const void* x,
                  const void* w, void* y) {
  return shape.out == DType::kF32 ? stream<T, float>(ctx, kernel, shape, x, w, y, 1.0f, 0.0f)
                                  : stream<T, T>(ctx, kernel, shape, x, w, y, 1.0f, 0.0f);
}

}  // namespace

bool launch_streaming(Context<Cuda>& ctx, DecodeKernel kernel, const MatmulShape& shape,
                      const void* x, const void* w, void* y) {
  if (kernel == DecodeKernel::kGemv ? !can_gemv(ctx, shape, x, w) : !can_skinny(ctx, shape, x, w))
    return false;
  return shape.in == DType::kBF16 ? stream_plain<BFloat16>(ctx, kernel, shape, x, w, y)
                                  : stream_plain<Float16>(ctx, kernel, shape, x, w, y);
}

template <typename T, typename Out>
bool gemv(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
          float scale, float softcap) {
  const MatmulShape shape = matmul_shape(x, y);
  const DecodeKernel kernel = decode_kernel(ctx, shape, x.data, w, y.data);
  return stream<T, Out>(ctx, kernel, shape, x.data, w, y.data, scale, softcap);
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
