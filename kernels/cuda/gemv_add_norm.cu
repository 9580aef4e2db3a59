// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_narrow.cuh"

namespace tandem::kernels {
namespace {

/// Adds the sums to the residual; the block that ends last, when the whole residual is there,
/// writes its norm. The next kernel loads its first weights meanwhile.
template <typename E>
struct AddNormEpilogue {
  E* residual;
  std::int64_t residual_stride;
  E* normed;  ///< Or null.
  std::int64_t normed_stride;
  const float* bias;
  const float* norm_weight;
  float scale, eps;
  int m, hidden;
  std::int32_t* counter;

  __device__ void operator()(int column, int unit, float sum, float) const {
    E* at = residual + column * residual_stride + unit;
    if (bias != nullptr) sum += bias[unit];
    *at = from_float<E>(to_float(*at) + scale * sum);
  }

  __device__ void finish(int, int, float* scratch) const {
    if (normed == nullptr) return;
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(counter, 1) == static_cast<int>(gridDim.x) - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;
    apply_norm(scratch);
  }

 private:
  /// 8 elements as other blocks wrote them.
  __device__ Vec<E, 8> fresh(const E* p) const {
    const uint4 bits = __ldcg(reinterpret_cast<const uint4*>(p));
    return *reinterpret_cast<const Vec<E, 8>*>(&bits);
  }
  __device__ void store_normed(int row, int i, Vec<E, 8> v, float factor) const {
    if (norm_weight != nullptr) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        v.at[j] = from_float<E>(to_float(v.at[j]) * factor * norm_weight[i + j]);
    }
    store_vec(normed + row * normed_stride + i, v);
  }
  __device__ static float square_sum(const Vec<E, 8>& v) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += to_float(v.at[j]) * to_float(v.at[j]);
    return sum;
  }
  /// The warps are dealt to the rows: all 8 to one, 4 each to two, ... The first kKept vectors of a
  /// thread stay in registers, which is the whole row up to a hidden size of 8192 at one row.
  __device__ void apply_norm(float* scratch) const {
    constexpr int kKept = 4;
    const int rows = m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
    const int threads = kGemvThreads / rows, row = threadIdx.x / threads;
    const int first = threadIdx.x % threads * 8, stride = threads * 8;
    const int size = row < m ? hidden : 0;
    const E* from = residual + row * residual_stride;
    Vec<E, 8> kept[kKept];
    float square = 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = first + k * stride;
      if (i < size) kept[k] = fresh(from + i);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (first + k * stride < size) square += square_sum(kept[k]);
    for (int i = first + kKept * stride; i < size; i += stride)
      square += square_sum(fresh(from + i));
    square = warp_sum(square);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = square;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < threads / 32; ++w) total += scratch[row * (threads / 32) + w];
    const float factor = norm_weight != nullptr ? rsqrtf(total / hidden + eps) : 1.0f;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = first + k * stride;
      if (i < size) store_normed(row, i, kept[k], factor);
    }
    for (int i = first + kKept * stride; i < size; i += stride)
      store_normed(row, i, fresh(from + i), factor);
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
  epilogue.normed = to_cuda(args.normed.data);
  epilogue.normed_stride = args.normed.stride;
  epilogue.bias = args.bias;
  epilogue.norm_weight = args.next_norm.weight;
  epilogue.scale = args.scale;
  epilogue.eps = args.next_norm.eps;
  epilogue.m = static_cast<int>(x.rows);
  epilogue.hidden = static_cast<int>(args.residual.cols);
  epilogue.counter = ctx.counters().data;
  if (!gemv_fits(x.rows, x.cols)) {
    epilogue.normed = nullptr;
    if (!launch_narrow_for<NarrowRows>(ctx, to_cuda(x.data), x.stride, x.rows, to_cuda(w),
                                       args.residual.cols, x.cols, epilogue))
      return false;
    AddNormArgs<T, Cuda> norm_only = args;
    norm_only.branch = {};
    if (args.normed.data != nullptr) add_norm(ctx, norm_only);
    return true;
  }
  launch_gemv<GemvRows>(ctx, to_cuda(x.data), x.stride, x.rows, to_cuda(w), args.residual.cols,
                        x.cols, epilogue);
  return true;
}

template bool gemv_add_norm(Context<Cuda>&, TensorView<const BFloat16, Cuda>, const BFloat16*,
                            TensorView<BFloat16, Cuda>, const AddNormArgs<BFloat16, Cuda>&);
template bool gemv_add_norm(Context<Cuda>&, TensorView<const Float16, Cuda>, const Float16*,
                            TensorView<Float16, Cuda>, const AddNormArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
