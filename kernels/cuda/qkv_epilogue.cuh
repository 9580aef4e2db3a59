// SPDX-License-Identifier: Apache-2.0
// What follows the QKV matmul, for one head of one token held by one warp: bias, norm, rotary
// embedding, and the store of q into its row or of k and v into the paged cache. Device code only.
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/qkv_project.h"

namespace tandem::kernels {

inline constexpr int kMaxHeadDim = 256;

/// `QkvArgs` without what the device does not need.
template <typename E>
struct QkvEpilogue {
  const std::int32_t* positions;
  const std::int32_t* slots;
  const std::int32_t* chunk_table;
  const float* bias;
  const float* q_norm;
  const float* k_norm;
  const float* squares;  ///< Of a joint norm, [num_tokens, 2]; null: every head by itself.
  const float* cos;
  const float* sin;
  E* kv_base;  ///< Of the layer.
  std::int64_t chunk_stride;
  E* q;  ///< [num_tokens, q_stride]
  std::int64_t q_stride;
  float q_eps, k_eps;
  std::int32_t joint_q_dims, joint_k_dims;
  std::int32_t table_stride, rotary_dim, num_q_heads, num_kv_heads, head_dim;

  /// The first key head of the token, whose position is not negative, in the cache. Key heads, then
  /// value heads follow in steps of `plane`.
  __device__ __forceinline__ E* cached(int token, std::int32_t position) const {
    const std::int64_t chunk =
        chunk_table[std::int64_t{slots[token]} * table_stride + position / kChunkTokens];
    return kv_base + chunk * chunk_stride + position % kChunkTokens * head_dim;
  }
  __device__ __forceinline__ std::int64_t plane() const {
    return std::int64_t{kChunkTokens} * head_dim;
  }
};

/// Makes the kernel's argument from the op's.
template <typename T>
QkvEpilogue<cuda_t<T>> make_qkv_epilogue(const QkvArgs<T, Cuda>& args) {
  QkvEpilogue<cuda_t<T>> e{};
  e.positions = args.step->positions;
  e.slots = args.step->slots;
  e.chunk_table = args.kv.chunk_table;
  e.bias = args.bias;
  e.q_norm = args.q_norm.weight;
  e.k_norm = args.k_norm.weight;
  e.squares = args.joint.squares;
  e.joint_q_dims = args.joint.q_dims;
  e.joint_k_dims = args.joint.k_dims;
  e.cos = args.rope.cos;
  e.sin = args.rope.sin;
  e.kv_base = to_cuda(args.kv.base) + args.layer * args.kv.layer_stride;
  e.chunk_stride = args.kv.chunk_stride;
  e.q = to_cuda(args.qkv.data);
  e.q_stride = args.qkv.stride;
  e.q_eps = args.q_norm.eps;
  e.k_eps = args.k_norm.eps;
  e.table_stride = args.kv.table_stride;
  e.rotary_dim = args.rope.rotary_dim;
  e.num_q_heads = args.num_q_heads;
  e.num_kv_heads = args.kv.num_kv_heads;
  e.head_dim = args.kv.head_dim;
  return e;
}

/// `head` counts q heads, then k heads, then v heads. `x` [head_dim] in shared memory, owned by
/// this warp: the sums of the matmul in, scratch afterwards.
template <typename E>
__device__ void finish_head(const QkvEpilogue<E>& e, int token, int head, float* x) {
  const int lane = threadIdx.x % 32, dim = e.head_dim;
  const std::int32_t position = e.positions[token];
  const bool is_q = head < e.num_q_heads;
  const bool is_v = head >= e.num_q_heads + e.num_kv_heads;
  E* to = nullptr;
  if (is_q) {
    to = e.q + token * e.q_stride + std::int64_t{head} * dim;
    if (position < 0) {
      for (int i = lane; i < dim; i += 32) to[i] = from_float<E>(0.0f);
      return;
    }
  } else {
    if (position < 0) return;
    to = e.cached(token, position) + (head - e.num_q_heads) * e.plane();
  }
  const float* norm = is_q ? e.q_norm : is_v ? nullptr : e.k_norm;
  float square = 0;
  for (int i = lane; i < dim; i += 32) {
    if (e.bias != nullptr) x[i] += e.bias[head * dim + i];
    square += x[i] * x[i];
  }
  if (norm != nullptr) {
    square = warp_sum(square) / dim;
    if (e.squares != nullptr) {
      square = e.squares[2 * token + (is_q ? 0 : 1)] / (is_q ? e.joint_q_dims : e.joint_k_dims);
      norm += (is_q ? head : head - e.num_q_heads) * dim;
    }
    const float factor = rsqrtf(square + (is_q ? e.q_eps : e.k_eps));
    for (int i = lane; i < dim; i += 32) x[i] *= factor * norm[i];
  }
  __syncwarp();
  const int half = e.cos != nullptr && !is_v ? e.rotary_dim / 2 : 0;
  for (int i = lane; i < dim; i += 32) {
    float y = x[i];
    if (i < 2 * half) {
      const int pair = i < half ? i : i - half;
      const float c = e.cos[std::int64_t{position} * half + pair];
      const float s = e.sin[std::int64_t{position} * half + pair];
      y = i < half ? x[i] * c - x[i + half] * s : x[i] * c + x[i - half] * s;
    }
    to[i] = from_float<E>(y);
  }
  __syncwarp();
}

}  // namespace tandem::kernels
