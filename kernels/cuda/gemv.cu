// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.h"

#include "kernels/cuda/gemm_narrow.cuh"

namespace tandem::kernels {

bool streams_weights(Context<Cuda>& ctx, const void* x, std::int64_t x_stride, std::int64_t m,
                     const void* w, std::int64_t k) {
  return ctx.options().decode_matmul == DecodeMatmul::kAuto && m >= 1 && m <= kNarrowMaxColumns &&
         k % 8 == 0 && x_stride % 8 == 0 && aligned_to(x, 16) && aligned_to(w, 16);
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

template <typename T, typename Out>
bool gemv(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
          float scale, float softcap) {
  if (!streams_weights(ctx, x.data, x.stride, x.rows, w, x.cols)) return false;
  const GemvStore<cuda_t<Out>> store{to_cuda(y.data), y.stride, scale, softcap};
  if (!gemv_fits(x.rows, x.cols))
    return launch_narrow_for<NarrowRows>(ctx, to_cuda(x.data), x.stride, x.rows, to_cuda(w), y.cols,
                                         x.cols, store);
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
