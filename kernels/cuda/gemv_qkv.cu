// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/qkv_epilogue.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxHeadsOfBlock = 32;

/// Sums go to scratch as floats; the block that brings the last rows of a head finishes that head
/// (bias, norm, rotary embedding, append) for all tokens, a warp each.
template <typename E>
struct QkvGemvEpilogue {
  QkvEpilogue<E> head_epilogue;
  float* sums;  ///< [m, rows]
  int rows, m;
  std::int32_t* counters;  ///< [heads] rows that have arrived

  __device__ void operator()(int column, int unit, float sum, float) const {
    sums[std::int64_t{column} * rows + unit] = sum;
  }

  __device__ void finish(int begin, int end, float* scratch) const {
    __shared__ bool complete[kMaxHeadsOfBlock];
    if (begin >= end) return;
    const int dim = head_epilogue.head_dim, first = begin / dim, last = (end - 1) / dim;
    __threadfence();
    __syncthreads();
    const int mine = first + static_cast<int>(threadIdx.x);
    if (mine <= last) {
      const int brought = min(end, (mine + 1) * dim) - max(begin, mine * dim);
      complete[threadIdx.x] = atomicAdd(counters + mine, brought) + brought == dim;
      if (complete[threadIdx.x]) counters[mine] = 0;
    }
    __syncthreads();
    __threadfence();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* staged = scratch + warp * kMaxHeadDim;
    for (int head = first; head <= last; ++head) {
      if (!complete[head - first]) continue;
      for (int token = warp; token < m; token += kGemvWarps) {
        for (int i = lane; i < dim; i += 32)
          staged[i] = __ldcg(sums + std::int64_t{token} * rows + head * dim + i);
        finish_head(head_epilogue, token, head, staged);
      }
    }
  }
};
static_assert(kGemvWarps * kMaxHeadDim <= kGemvScratch);

}  // namespace

template <typename T>
bool gemv_qkv(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  const std::int64_t rows = args.weight->rows();
  const T* w = args.weight->data();
  const int dim = args.kv.head_dim;
  if (!gemv_fits(args.x.rows, args.x.cols) || dim > kMaxHeadDim ||
      rows / ctx.num_sms() / dim + 2 > kMaxHeadsOfBlock ||
      args.x.rows * rows > ctx.partials().size || rows / dim > ctx.counters().size ||
      !streams_weights(ctx, matmul_shape(args.x, args.qkv), args.x.data, w, args.qkv.data))
    return false;
  QkvGemvEpilogue<cuda_t<T>> epilogue{};
  epilogue.head_epilogue = make_qkv_epilogue(args);
  epilogue.sums = ctx.partials().data;
  epilogue.rows = static_cast<int>(rows);
  epilogue.m = static_cast<int>(args.x.rows);
  epilogue.counters = ctx.counters().data;
  launch_gemv<GemvRows>(ctx, to_cuda(args.x.data), args.x.stride, args.x.rows, to_cuda(w), rows,
                        args.x.cols, epilogue);
  return true;
}

template bool gemv_qkv(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template bool gemv_qkv(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
