// SPDX-License-Identifier: Apache-2.0
#include "kernels/qkv_project.h"

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/qkv_epilogue.cuh"

namespace tandem::kernels {
namespace {

constexpr int kWarps = 4;

/// One warp per head of a token. `qkv` is the matmul's result; q is finished in place.
template <typename E>
__global__ void __launch_bounds__(kWarps * 32) qkv_epilogue_kernel(QkvEpilogue<E> e) {
  __shared__ float staged[kWarps][kMaxHeadDim];
  pdl_wait();
  pdl_trigger();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head = blockIdx.y * kWarps + warp;
  if (head >= e.num_q_heads + 2 * e.num_kv_heads) return;
  const E* from = e.q + blockIdx.x * e.q_stride + std::int64_t{head} * e.head_dim;
  for (int i = lane; i < e.head_dim; i += 32) staged[warp][i] = to_float(from[i]);
  finish_head(e, blockIdx.x, head, staged[warp]);
}

/// One block per token: squares of its q columns, and of its k columns from `k_begin` on.
template <typename E>
__global__ void __launch_bounds__(kWarps * 32)
    qkv_squares_kernel(const E* qkv, std::int64_t stride, const float* bias, int q_end, int k_begin,
                       int k_end, float* squares) {
  __shared__ float scratch[32];
  pdl_wait();
  pdl_trigger();
  const E* row = qkv + blockIdx.x * stride;
  const auto square = [&](int column) {
    const float x = to_float(row[column]) + (bias == nullptr ? 0.0f : bias[column]);
    return x * x;
  };
  float q = 0, k = 0;
  for (int i = threadIdx.x; i < q_end; i += blockDim.x) q += square(i);
  for (int i = k_begin + threadIdx.x; i < k_end; i += blockDim.x) k += square(i);
  q = block_sum(q, scratch);
  k = block_sum(k, scratch);
  if (threadIdx.x == 0) {
    squares[2 * blockIdx.x] = q;
    squares[2 * blockIdx.x + 1] = k;
  }
}

}  // namespace

template <typename T>
void qkv_project(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  if (args.x.rows == 0) return;
  TANDEM_ASSERT(args.kv.head_dim <= kMaxHeadDim, "head size ", args.kv.head_dim);
  if constexpr (sizeof(T) == 2)
    if (gemv_qkv(ctx, args)) return;
  apply_deferred(ctx, args.deferred);
  matmul(ctx, args.x, *args.weight, args.qkv);
  qkv_finish(ctx, args);
}

template <typename T>
void qkv_project_squares(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  if (args.x.rows == 0) return;
  apply_deferred(ctx, args.deferred);
  matmul(ctx, args.x, *args.weight, args.qkv);
  const int dim = args.kv.head_dim, q_end = args.num_q_heads * dim;
  launch(ctx, dependent(dim3(args.x.rows), dim3(kWarps * 32)), qkv_squares_kernel<cuda_t<T>>,
         to_cuda(args.qkv.data), args.qkv.stride, args.bias, q_end,
         q_end + args.joint.first_own_kv_head * dim, q_end + args.kv.num_kv_heads * dim,
         args.joint.squares);
}

template <typename T>
void qkv_finish(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  if (args.x.rows == 0) return;
  TANDEM_ASSERT(args.kv.head_dim <= kMaxHeadDim, "head size ", args.kv.head_dim);
  const int heads = args.num_q_heads + 2 * args.kv.num_kv_heads;
  const dim3 grid(args.x.rows, (heads + kWarps - 1) / kWarps);
  launch(ctx, dependent(grid, dim3(kWarps * 32)), qkv_epilogue_kernel<cuda_t<T>>,
         make_qkv_epilogue(args));
}

template void qkv_project<float>(Context<Cuda>&, const QkvArgs<float, Cuda>&);
template void qkv_project<BFloat16>(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template void qkv_project<Float16>(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);
template void qkv_project_squares<float>(Context<Cuda>&, const QkvArgs<float, Cuda>&);
template void qkv_project_squares<BFloat16>(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template void qkv_project_squares<Float16>(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);
template void qkv_finish<float>(Context<Cuda>&, const QkvArgs<float, Cuda>&);
template void qkv_finish<BFloat16>(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template void qkv_finish<Float16>(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
