// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/skinny_launch.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxJobs = 4;  // of a thread, with 64 columns

/// Adds sums to the residual; for the norm that is left to the next matmul, keeps residual * weight
/// and each block's share of the squares of its rows.
template <typename E>
struct SkinnyAddNorm {
  E* residual;
  std::int64_t residual_stride;
  const float* bias;
  float scale;
  float* square_sums;  ///< [m, blocks], or null.
  const float* weight;
  E* weighted;
  std::int64_t weighted_stride;
  float square = 0;
  Vec<E, 8> loaded[kMaxJobs];
  Vec<float, 8> weights[kMaxJobs];

  __device__ void before_wait(int) const {}
  __device__ void load(int i, int column, int row) {
    loaded[i] = load_vec<E, 8>(residual + column * residual_stride + row);
    if (weight != nullptr) weights[i] = load_vec<float, 8>(weight + row);
  }
  __device__ void operator()(int i, int column, int row, const float (&sums)[8],
                             const float (&)[8]) {
    Vec<E, 8> values, products;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float branch = sums[j] + (bias == nullptr ? 0.0f : bias[row + j]);
      values.at[j] = from_float<E>(to_float(loaded[i].at[j]) + scale * branch);
      const float value = to_float(values.at[j]);
      square += value * value;
      if (weight != nullptr) products.at[j] = from_float<E>(value * weights[i].at[j]);
    }
    store_vec(residual + column * residual_stride + row, values);
    if (weight != nullptr) store_vec(weighted + column * weighted_stride + row, products);
  }
  /// `scratch`: a float of this column.
  __device__ void finish(int column, const SkinnyArgs& args, float* scratch) {
    if (square_sums == nullptr) return;
    const int threads = args.m <= 16 ? 8 : args.m <= 32 ? 4 : 2;  // of the column in a warpgroup
    for (int mask = threads / 2; mask > 0; mask >>= 1)
      square += __shfl_xor_sync(0xffffffffu, square, mask);
    const bool leads = column < args.m && threadIdx.x % threads == 0;
    skinny_sync_groups();  // all have read their sums
    if (leads && threadIdx.x >= 128) *scratch = square;
    skinny_sync_groups();
    if (leads && threadIdx.x < 128)
      square_sums[column * gridDim.x + blockIdx.x] = square + *scratch;
  }
};

}  // namespace

template <typename T>
bool skinny_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                     const AddNormArgs<T, Cuda>& args) {
  SkinnyAddNorm<cuda_t<T>> epilogue{};
  epilogue.residual = to_cuda(args.residual.data);
  epilogue.residual_stride = args.residual.stride;
  epilogue.bias = args.bias;
  epilogue.scale = args.scale;
  const std::int64_t boxes = args.residual.cols / SkinnyRows::kBoxRows;
  // A half-precision residual times a weight may overflow before the factor is applied.
  const bool defers =
      args.deferred != nullptr && args.next_norm.weight != nullptr && std::is_same_v<T, BFloat16>;
  if (defers) {
    epilogue.square_sums = ctx.square_sums().data;
    epilogue.weight = args.next_norm.weight;
    epilogue.weighted = to_cuda(args.normed.data);
    epilogue.weighted_stride = args.normed.stride;
    *args.deferred = {args.residual,
                      args.normed,
                      args.next_norm,
                      epilogue.square_sums,
                      skinny_blocks(ctx.num_sms()),
                      true};
  }
  const bool is_down = x.cols > args.residual.cols;  // it has no attention beside it
  launch_skinny<T, SkinnyRows>(ctx, x, w, boxes, nullptr, !is_down, epilogue);
  return defers;
}

template bool skinny_add_norm(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                              const AddNormArgs<BFloat16, Cuda>&);
template bool skinny_add_norm(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                              const AddNormArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
