// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/qkv_epilogue.cuh"
#include "kernels/cuda/skinny.h"

namespace tandem::kernels {
namespace {

/// A unit is element i of a head and its rotary partner i + head_dim / 2: both sums are in the same
/// tile.
struct RopePairs {
  static constexpr int kUnits = 8;
  int half;  ///< head_dim / 2
  __device__ int row(int unit, int r) const {
    const int j = unit + r % 8;
    return j + (j / half + r / 8) * half;
  }
};

/// Bias, rotary embedding and append, or q.
template <typename E>
struct QkvGemvEpilogue {
  QkvEpilogue<E> e;
  int position;  ///< Of the token of this thread.
  float2 turn;   ///< Cosine and sine for the next sums.
  E* cached;     ///< Its place in the cache, of the first key head.

  /// The step's rows are complete before the first layer starts.
  __device__ void before_wait(int token, int) {
    position = e.positions[token];
    if (position >= 0) cached = e.cached(token, position);
  }
  __device__ void start() const {}
  __device__ void load(int, int unit) {
    const int half = e.head_dim / 2, head = unit / half;
    turn = {1.0f, 0.0f};
    if (e.cos == nullptr || head >= e.num_q_heads + e.num_kv_heads || position < 0) return;
    const std::int64_t at = std::int64_t{position} * half + unit % half;
    turn = {e.cos[at], e.sin[at]};
  }
  __device__ void operator()(int token, int unit, float low, float high) const {
    const int half = e.head_dim / 2, head = unit / half, i = unit % half;
    const bool is_q = head < e.num_q_heads;
    if (position < 0 && !is_q) return;
    if (e.bias != nullptr) {
      low += e.bias[head * e.head_dim + i];
      high += e.bias[head * e.head_dim + i + half];
    }
    const float x = low;
    low = x * turn.x - high * turn.y;
    high = high * turn.x + x * turn.y;
    E* to = is_q ? e.q + token * e.q_stride + head * e.head_dim
                 : cached + (head - e.num_q_heads) * e.plane();
    to[i] = from_float<E>(position < 0 ? 0.0f : low);
    to[i + half] = from_float<E>(position < 0 ? 0.0f : high);
  }
  __device__ void finish(int, int, int) const {}
};

}  // namespace

template <typename T>
bool gemv_qkv(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  const T* w = args.weight->data();
  const int dim = args.kv.head_dim;
  const bool rotates_whole_heads = args.rope.cos == nullptr || args.rope.rotary_dim == dim;
  if (dim % 2 != 0 || (args.x.rows > kGemvMaxRows && dim % 16 != 0) || !rotates_whole_heads ||
      args.q_norm.weight != nullptr || args.k_norm.weight != nullptr ||
      !streams_with_norm(ctx, matmul_shape(args.x, args.qkv), args.x.data, w, args.qkv.data,
                         args.deferred))
    return false;
  if (args.x.rows > kGemvMaxRows) {
    skinny_qkv(ctx, args);
    return true;
  }
  QkvGemvEpilogue<cuda_t<T>> epilogue{};
  epilogue.e = make_qkv_epilogue(args);
  launch_gemv(ctx, gemv_args<T>(args.x, w, args.weight->rows() / 2, args.deferred), epilogue,
              RopePairs{dim / 2});
  return true;
}

template bool gemv_qkv(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template bool gemv_qkv(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
