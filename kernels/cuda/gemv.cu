// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.h"

#include "kernels/cuda/gemm_narrow.cuh"
#include "kernels/cuda/linear_cublaslt.h"

namespace tandem::kernels {

bool streams_weights(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w,
                     void* y) {
  const DecodeMatmul option = ctx.options().decode_matmul;
  if (option == DecodeMatmul::kCublasLt || shape.m < 1 || shape.m > kNarrowMaxColumns ||
      shape.k % 8 != 0 || shape.x_stride % 8 != 0 || !aligned_to(x, 16) || !aligned_to(w, 16))
    return false;
  return option == DecodeMatmul::kStreaming ||
         ctx.cublaslt().prefers_streaming(ctx, shape, x, w, y);
}

bool gemv_fits(std::int64_t m, std::int64_t k) {
  constexpr std::size_t kMaxShared = 224 << 10;
  return m <= kGemvMaxRows && gemv_shared_bytes(m, k) <= kMaxShared;
}

int max_active_clusters(const void* kernel, int cluster, int threads, std::size_t shared_bytes) {
  TANDEM_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(cluster);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  TANDEM_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return clusters;
}

namespace {

template <typename T, typename Out>
bool stream(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w, void* y,
            float scale, float softcap) {
  using E = cuda_t<T>;
  const GemvStore<cuda_t<Out>> store{static_cast<cuda_t<Out>*>(y), shape.y_stride, scale, softcap};
  const auto *from = static_cast<const E*>(x), *weight = static_cast<const E*>(w);
  if (!gemv_fits(shape.m, shape.k))
    return launch_narrow_for<NarrowRows>(ctx, from, shape.x_stride, shape.m, weight, shape.n,
                                         shape.k, store);
  launch_gemv<GemvRows>(ctx, from, shape.x_stride, shape.m, weight, shape.n, shape.k, store);
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
