// SPDX-License-Identifier: Apache-2.0
#include "kernels/qkv_project.h"

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/load_floats.cuh"
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

/// The same with 16-byte loads and stores: a thread has eight columns of either half of a head, so
/// rotary pairs are its own, and goes through heads with the same cosines. A block belongs to one
/// token, or to some of its heads (gridDim.y) when there are few tokens.
template <typename E, int kDim>
__global__ void __launch_bounds__(kWarps * 32) qkv_epilogue_wide_kernel(QkvEpilogue<E> e) {
  constexpr int kN = 8, kHalf = kDim / 2, kLanes = kHalf / kN, kGroups = kWarps * 32 / kLanes;
  pdl_wait();
  pdl_trigger();
  const std::int64_t token = blockIdx.x;
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const unsigned peers = ((1u << kLanes) - 1u) << (threadIdx.x % 32 - lane);
  const std::int32_t position = e.positions[token];
  const bool rotates = e.cos != nullptr && position >= 0;
  float cos[kN], sin[kN];
  if (rotates) {
    load_floats<kN>(e.cos + std::int64_t{position} * kHalf + lane * kN, cos);
    load_floats<kN>(e.sin + std::int64_t{position} * kHalf + lane * kN, sin);
  }
  E* const cache = position >= 0 ? e.cached(static_cast<int>(token), position) : nullptr;
  const int num_heads = e.num_q_heads + 2 * e.num_kv_heads;
  for (int head = blockIdx.y * kGroups + group; head < num_heads; head += kGroups * gridDim.y) {
    const bool is_q = head < e.num_q_heads, is_v = head >= e.num_q_heads + e.num_kv_heads;
    E* row = e.q + token * e.q_stride + std::int64_t{head} * kDim + lane * kN;
    if (position < 0) {
      if (is_q) store_vec(row, Vec<E, kN>{}), store_vec(row + kHalf, Vec<E, kN>{});
      continue;
    }
    const auto low = load_vec<E, kN>(row), high = load_vec<E, kN>(row + kHalf);
    float a[kN], b[kN], square = 0;
    float low_bias[kN] = {}, high_bias[kN] = {};
    if (e.bias != nullptr) {
      load_floats<kN>(e.bias + head * kDim + lane * kN, low_bias);
      load_floats<kN>(e.bias + head * kDim + kHalf + lane * kN, high_bias);
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      a[j] = to_float(low.at[j]) + low_bias[j];
      b[j] = to_float(high.at[j]) + high_bias[j];
      square += a[j] * a[j] + b[j] * b[j];
    }
    const float* norm = is_q ? e.q_norm : is_v ? nullptr : e.k_norm;
    if (norm != nullptr) {
#pragma unroll
      for (int mask = kLanes / 2; mask > 0; mask /= 2)
        square += __shfl_xor_sync(peers, square, mask);
      square /= kDim;
      if (e.squares != nullptr) {
        square = e.squares[2 * token + (is_q ? 0 : 1)] / (is_q ? e.joint_q_dims : e.joint_k_dims);
        norm += (is_q ? head : head - e.num_q_heads) * kDim;
      }
      const float factor = rsqrtf(square + (is_q ? e.q_eps : e.k_eps));
      float weight[kN];
      load_floats<kN>(norm + lane * kN, weight);
#pragma unroll
      for (int j = 0; j < kN; ++j) a[j] *= factor * weight[j];
      load_floats<kN>(norm + kHalf + lane * kN, weight);
#pragma unroll
      for (int j = 0; j < kN; ++j) b[j] *= factor * weight[j];
    }
    Vec<E, kN> first, second;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const bool turn = rotates && !is_v;
      first.at[j] = from_float<E>(turn ? a[j] * cos[j] - b[j] * sin[j] : a[j]);
      second.at[j] = from_float<E>(turn ? b[j] * cos[j] + a[j] * sin[j] : b[j]);
    }
    E* to =
        is_q ? row : cache + std::int64_t{head - e.num_q_heads} * kChunkTokens * kDim + lane * kN;
    store_vec(to, first);
    store_vec(to + kHalf, second);
  }
}

/// Whether the wide kernel can do it; else every head has a warp.
template <typename E>
bool launch_wide(Context<Cuda>& ctx, const QkvEpilogue<E>& e, std::int64_t rows) {
  if constexpr (sizeof(E) != 2) {
    return false;
  } else {
    if (e.cos != nullptr && e.rotary_dim != e.head_dim) return false;
    if (e.q_stride % 8 != 0 || e.chunk_stride % 8 != 0) return false;
    for (const void* p : {static_cast<const void*>(e.q), static_cast<const void*>(e.kv_base),
                          static_cast<const void*>(e.bias), static_cast<const void*>(e.q_norm),
                          static_cast<const void*>(e.k_norm), static_cast<const void*>(e.cos),
                          static_cast<const void*>(e.sin)})
      if (!aligned_to(p, 16)) return false;
    const auto kernel = e.head_dim == 64    ? qkv_epilogue_wide_kernel<E, 64>
                        : e.head_dim == 128 ? qkv_epilogue_wide_kernel<E, 128>
                        : e.head_dim == 256 ? qkv_epilogue_wide_kernel<E, 256>
                                            : nullptr;
    if (kernel == nullptr) return false;
    constexpr int kEnoughBlocks = 256;
    const int groups = kWarps * 32 * 16 / e.head_dim;
    const int parts = (e.num_q_heads + 2 * e.num_kv_heads + groups - 1) / groups;
    launch(ctx, dependent(dim3(rows, rows < kEnoughBlocks ? parts : 1), dim3(kWarps * 32)), kernel,
           e);
    return true;
  }
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
  const QkvEpilogue<cuda_t<T>> epilogue = make_qkv_epilogue(args);
  if (launch_wide(ctx, epilogue, args.x.rows)) return;
  const int heads = args.num_q_heads + 2 * args.kv.num_kv_heads;
  const dim3 grid(args.x.rows, (heads + kWarps - 1) / kWarps);
  launch(ctx, dependent(grid, dim3(kWarps * 32)), qkv_epilogue_kernel<cuda_t<T>>, epilogue);
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
