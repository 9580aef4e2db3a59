// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/skinny_launch.cuh"

namespace tandem::kernels {
namespace {

/// Keeps the sums, after scale and softcap.
template <typename Out>
struct SkinnyStore {
  Out* y;
  std::int64_t y_stride;
  float scale, softcap;
  __device__ void before_wait(int) const {}
  __device__ void load(int, int, int) const {}
  __device__ void operator()(int, int column, int row, const float (&sums)[8],
                             const float (&)[8]) const {
    Vec<Out, 8> values;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float value = sums[j] * scale;
      if (softcap > 0.0f) value = softcap * tanhf(value / softcap);
      values.at[j] = from_float<Out>(value);
    }
    store_vec(y + column * y_stride + row, values);
  }
  __device__ void finish(int, const SkinnyArgs&, float*) const {}
};

}  // namespace

bool skinny_fits(const MatmulShape& shape, const void* x, const void* w) {
  return shape.m >= kSkinnyMinRows && shape.m <= kSkinnyMaxRows && shape.k % kSkinnyK == 0 &&
         shape.n % SkinnyRows::kBoxRows == 0 && shape.x_stride % 8 == 0 &&
         shape.y_stride % 8 == 0 && aligned_to(x, 16) && aligned_to(w, 16);
}

template <typename T, typename Out>
void skinny(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
            float scale, float softcap) {
  const SkinnyStore<cuda_t<Out>> store{to_cuda(y.data), y.stride, scale, softcap};
  launch_skinny<T, SkinnyRows>(ctx, x, w, y.cols / SkinnyRows::kBoxRows, nullptr, false, store);
}

template void skinny(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                     TensorView<BFloat16, Cuda>, float, float);
template void skinny(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                     TensorView<float, Cuda>, float, float);
template void skinny(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                     TensorView<Float16, Cuda>, float, float);
template void skinny(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                     TensorView<float, Cuda>, float, float);

}  // namespace tandem::kernels
