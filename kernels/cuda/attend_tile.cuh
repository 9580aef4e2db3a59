// SPDX-License-Identifier: Apache-2.0
// One warp's part of attention with mma: 16 query rows against tiles of kTokens keys and values in
// shared memory, online softmax (Dao et al. 2022, arXiv 2205.14135). Rows are whatever the kernel
// packs: the query heads of one KV head, or consecutive tokens of one head. Device code only.
#pragma once

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {

/// Scores are kept in units of log2, so that exp2 gives the weights.
struct ScoreScale {
  static constexpr float kLog2e = 1.44269504f;
  float scale, softcap;
  __device__ float operator()(float dot) const {
    if (softcap > 0.0f) return softcap * tanhf(dot * scale / softcap) * kLog2e;
    return dot * scale * kLog2e;
  }
  /// The factor where there is no cap.
  __device__ float in_log2() const { return scale * kLog2e; }
};

/// Keys that a row may see: [begin, end).
struct KeyRange {
  std::int32_t begin, end;
};

template <typename E, int kDim, int kTokens>
struct AttendTile {
  static constexpr int kPitch = kDim + 8;  ///< Elements between rows; no bank conflicts.
  std::uint32_t q[kDim / 16][4];
  float out[kDim / 8][4];
  float max[2], sum[2];  ///< Of rows g and g + 8; `sum` of this thread's keys only.

  /// Rows g and g + 8 of this lane; null rows are zeros.
  __device__ void start(const E* row0, const E* row1) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const E* row = r % 2 == 0 ? row0 : row1;
        q[k][r] = row == nullptr
                      ? 0
                      : *reinterpret_cast<const std::uint32_t*>(row + k * 16 + r / 2 * 8 + t * 2);
      }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) out[n][r] = 0;
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0;
  }

  /// `keys` and `values` [kTokens, kPitch] start at key number `first`.
  __device__ void add(const E* keys, const E* values, int first, const KeyRange (&range)[2],
                      const ScoreScale& score) {
    const int lane = threadIdx.x % 32;
    float s[kTokens / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
      for (int n = 0; n < kTokens / 16; ++n) {
        std::uint32_t b[4];
        load_matrices(
            b, keys + (n * 16 + lane % 8 + lane / 16 * 8) * kPitch + k * 16 + lane / 8 % 2 * 8);
        mma16816<E>(s[2 * n], q[k], b[0], b[1]);
        mma16816<E>(s[2 * n + 1], q[k], b[2], b[3]);
      }
    weigh(s, first, range, score);
#pragma unroll
    for (int n = 0; n < kTokens / 16; ++n) {
      const std::uint32_t p[4] = {
          pack2<E>(s[2 * n][0], s[2 * n][1]), pack2<E>(s[2 * n][2], s[2 * n][3]),
          pack2<E>(s[2 * n + 1][0], s[2 * n + 1][1]), pack2<E>(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        std::uint32_t b[4];
        load_matrices_transposed(b,
                                 values + (n * 16 + lane % 16) * kPitch + d * 16 + lane / 16 * 8);
        mma16816<E>(out[2 * d], p, b[0], b[1]);
        mma16816<E>(out[2 * d + 1], p, b[2], b[3]);
      }
    }
  }

  /// Sums over the four lanes that share a row; call once, after the last tile.
  __device__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    }
  }

 private:
  /// Scores to weights, in place; rescales what was summed under a smaller maximum.
  __device__ void weigh(float (&s)[kTokens / 8][4], int first, const KeyRange (&range)[2],
                        const ScoreScale& score) {
    const int t = threadIdx.x % 4;
    float top[2] = {max[0], max[1]};
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int key = first + n * 8 + t * 2 + r % 2;
        const KeyRange& keys = range[r / 2];
        s[n][r] = key >= keys.begin && key < keys.end ? score(s[n][r]) : -INFINITY;
        top[r / 2] = fmaxf(top[r / 2], s[n][r]);
      }
    float rescale[2], base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      base[r] = top[r] == -INFINITY ? 0.0f : top[r];  // nothing seen yet: weights are 0, not NaN
      rescale[r] = exp2f(max[r] - base[r]);
      sum[r] *= rescale[r];
      max[r] = top[r];
    }
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        s[n][r] = exp2f(s[n][r] - base[r / 2]);
        sum[r / 2] += s[n][r];
      }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) out[n][r] *= rescale[r / 2];
  }
};

}  // namespace tandem::kernels
