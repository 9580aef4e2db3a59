// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.cuh"

namespace tandem::kernels {
namespace {

/// Adds the sums to the residual and keeps each block's share of the squares of its rows.
template <typename E>
struct AddNormEpilogue {
  E* residual;
  std::int64_t residual_stride;
  const float* bias;
  float scale;
  float* square_sums;  ///< [m, blocks], or null.
  int m;
  float square = 0;  ///< Of this thread's sums.
  float loaded = 0;  ///< The residual that the next sum is added to.

  __device__ void before_wait(int, int) const {}
  __device__ void load(int column, int unit) {
    loaded = to_float(residual[column * residual_stride + unit]);
    if (bias != nullptr) loaded += scale * bias[unit];
  }
  __device__ void operator()(int column, int unit, float sum, float) {
    const E value = from_float<E>(loaded + scale * sum);
    residual[column * residual_stride + unit] = value;
    square += to_float(value) * to_float(value);
  }
  __device__ void finish(int column) {
    if (square_sums == nullptr) return;
#pragma unroll
    for (int mask = GemvRows::kUnits / 2; mask > 0; mask >>= 1)
      square += __shfl_xor_sync(0xffffffffu, square, mask);
    if (column < m && threadIdx.x % GemvRows::kUnits == 0)
      square_sums[column * gridDim.x + blockIdx.x] = square;
  }
};

}  // namespace

template <typename T>
bool gemv_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                   TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args) {
  if (args.post_norm.weight != nullptr || args.residual.cols % 8 != 0 ||
      args.residual.stride % 8 != 0 || args.normed.stride % 8 != 0 ||
      !aligned_to(args.residual.data, 16) || !aligned_to(args.normed.data, 16) ||
      !streams_weights(ctx, matmul_shape(x, scratch), x.data, w, scratch.data))
    return false;
  AddNormEpilogue<cuda_t<T>> epilogue{};
  epilogue.residual = to_cuda(args.residual.data);
  epilogue.residual_stride = args.residual.stride;
  epilogue.bias = args.bias;
  epilogue.scale = args.scale;
  epilogue.m = static_cast<int>(x.rows);
  const auto matmul = gemv_args<T>(x, w, args.residual.cols, nullptr);
  const bool defers = args.deferred != nullptr && args.next_norm.weight != nullptr;
  if (defers) {
    epilogue.square_sums = ctx.square_sums().data;
    *args.deferred = {args.residual, args.normed, args.next_norm, epilogue.square_sums,
                      ctx.num_sms()};
  }
  launch_gemv<GemvRows>(ctx, matmul, epilogue);
  if (defers || args.normed.data == nullptr) return true;
  AddNormArgs<T, Cuda> norm_only = args;
  norm_only.branch = {};
  add_norm(ctx, norm_only);
  return true;
}

template bool gemv_add_norm(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                            TensorView<BFloat16, Cuda>, const AddNormArgs<BFloat16, Cuda>&);
template bool gemv_add_norm(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                            TensorView<Float16, Cuda>, const AddNormArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
