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
  FastDivisor half;  ///< head_dim / 2
  __device__ int row(int unit, int r) const {
    const int j = unit + r % 8;
    return j + (half.divide(j) + r / 8) * half.by;
  }
};

/// Bias, rotary embedding and append, or q.
template <typename E>
struct QkvGemvEpilogue {
  QkvEpilogue<E> e;
  FastDivisor half;  ///< head_dim / 2
  int position;      ///< Of the token of this thread.
  E* cached;         ///< Its place in the cache, of the first key head.
  float2 turn;       ///< Cosine and sine for the next sums.
  float2 bias;       ///< Of the next sums.
  E* to;             ///< Their place, or null: nowhere.

  static constexpr bool kNorms = true;
  static constexpr int kLate = 0;
  /// The step's rows are complete before the first layer starts.
  __device__ void before_wait(int token, int unit) {
    position = e.positions[token];
    if (position >= 0) cached = e.cached(token, position);
    load(token, unit);
  }
  __device__ void start() const {}
  __device__ void load_first(int, int) const {}
  __device__ void load(int token, int unit) {
    const int head = half.divide(unit), i = unit - head * half.by;
    const bool is_q = head < e.num_q_heads;
    to = nullptr;
    if (is_q)
      to = e.q + token * e.q_stride + head * e.head_dim + i;
    else if (position >= 0)
      to = cached + (head - e.num_q_heads) * e.plane() + i;
    turn = {1.0f, 0.0f};
    bias = {0.0f, 0.0f};
    if (e.bias != nullptr) {
      const float* from = e.bias + head * e.head_dim + i;
      bias = {from[0], from[half.by]};
    }
    if (e.cos == nullptr || head >= e.num_q_heads + e.num_kv_heads || position < 0) return;
    const std::int64_t at = std::int64_t{position} * half.by + i;
    turn = {e.cos[at], e.sin[at]};
  }
  __device__ void operator()(int, int, float low, float high) const {
    if (to == nullptr) return;
    low += bias.x;
    high += bias.y;
    to[0] = from_float<E>(position < 0 ? 0.0f : low * turn.x - high * turn.y);
    to[half.by] = from_float<E>(position < 0 ? 0.0f : high * turn.x + low * turn.y);
  }
  __device__ void finish(int, int, int) const {}
};

}  // namespace

template <typename T>
bool gemv_qkv(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  const T* w = args.weight->data();
  const int dim = args.kv.head_dim;
  const bool rotates_whole_heads = args.rope.cos == nullptr || args.rope.rotary_dim == dim;
  if (dim % 2 != 0 || !rotates_whole_heads || args.q_norm.weight != nullptr ||
      args.k_norm.weight != nullptr)
    return false;
  const MatmulShape shape = matmul_shape(args.x, args.qkv);
  DecodeKernel kernel =
      decode_kernel_with_norm(ctx, shape, args.x.data, w, args.qkv.data, args.deferred);
  if (kernel == DecodeKernel::kSkinny && dim % 16 != 0)
    kernel = can_gemv(ctx, shape, args.x.data, w) ? DecodeKernel::kGemv : DecodeKernel::kLibrary;
  if (kernel == DecodeKernel::kLibrary) return false;
  if (kernel == DecodeKernel::kSkinny) {
    skinny_qkv(ctx, args);
    return true;
  }
  const FastDivisor half(dim / 2);
  const QkvGemvEpilogue<cuda_t<T>> epilogue{make_qkv_epilogue(args), half, {}, {}, {}, {}, {}};
  launch_gemv(ctx, gemv_args<T>(args.x, w, args.deferred), args.weight->rows() / 2, epilogue,
              RopePairs{half});
  return true;
}

template bool gemv_qkv(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template bool gemv_qkv(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
