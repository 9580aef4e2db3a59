// SPDX-License-Identifier: Apache-2.0
// Online softmax on the accumulator of S = Q K^T of one warpgroup, in the exp2 domain: weights are
// exp2(s * c - max * c) with c = scale * log2(e), one fused multiply-add and one exp2 each (Dao et
// al. 2022, arXiv 2205.14135; Milakov and Gimelshein 2018, arXiv 1805.02867). A thread holds two
// rows (`attend_prefill_wgmma.cuh`), a row is spread over four neighbouring lanes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attend_prefill_wgmma.cuh"

namespace tandem::kernels::prefill {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

/// Scores of keys that a row does not see become -infinity, whatever they were (NaN included).
/// `last` is the last visible column of the thread's first row and `before` the one in front of
/// the first, both less the thread's own first column; the second row's are 8 larger.
__device__ __forceinline__ void mask_scores(float (&s)[64], int before, int last) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 8 * j + e;
      if (column > last || column <= before) s[4 * j + e] = kMinusInfinity;
      if (column > last + 8 || column <= before + 8) s[4 * j + 2 + e] = kMinusInfinity;
    }
  }
}

/// A branch that is never taken (weights are at most 1). ptxas sinks arithmetic behind the wait for
/// the product in flight when nothing holds it, which ends the overlap; what `sum` depends on stays
/// in front of this branch. The vote keeps the branch uniform, and with it the loop's state.
__device__ __forceinline__ void keep_before_wait(float sum) {
  if (__any_sync(~0u, sum > 1e30f)) asm volatile("nanosleep.u32 1;" ::: "memory");
}

struct SoftmaxState {
  float maximum[2];  ///< Of the raw scores seen so far.
  float sum[2];      ///< This thread's share of the row.
};

/// Largest of a row's 32 scores in this thread and `start`; four chains for latency.
template <int kRow>
__device__ __forceinline__ float thread_max(const float (&s)[64], float start) {
  float best[4] = {start, s[2 * kRow], s[2 * kRow + 1], s[4 + 2 * kRow]};
  best[0] = fmaxf(best[0], s[4 + 2 * kRow + 1]);
#pragma unroll
  for (int j = 2; j < 16; j += 2) {
    best[0] = fmaxf(best[0], s[4 * j + 2 * kRow]);
    best[1] = fmaxf(best[1], s[4 * j + 2 * kRow + 1]);
    best[2] = fmaxf(best[2], s[4 * j + 4 + 2 * kRow]);
    best[3] = fmaxf(best[3], s[4 * j + 4 + 2 * kRow + 1]);
  }
  return fmaxf(fmaxf(best[0], best[1]), fmaxf(best[2], best[3]));
}

template <int kRow>
__device__ __forceinline__ float exponentiate(float (&s)[64], float c, float offset) {
  float sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& value = s[4 * j + 2 * kRow + e];
      value = exp2_fast(fmaf(value, c, -offset));
      sum[e] += value;
    }
  }
  return sum[0] + sum[1];
}

/// Scores become weights. `correction` is what earlier output of the row has to be scaled by.
/// `kMasked`: a row may have no visible key so far.
template <bool kFirst, bool kMasked>
__device__ __forceinline__ void online_softmax(float (&s)[64], SoftmaxState& state, float c,
                                               float (&correction)[2]) {
  const float previous[2] = {kFirst ? kMinusInfinity : state.maximum[0],
                             kFirst ? kMinusInfinity : state.maximum[1]};
  state.maximum[0] = quad_max(thread_max<0>(s, previous[0]));
  state.maximum[1] = quad_max(thread_max<1>(s, previous[1]));
  float offset[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool none = kMasked && state.maximum[r] == kMinusInfinity;
    offset[r] = none ? 0.0f : state.maximum[r] * c;
    correction[r] = kFirst ? 1.0f : exp2_fast(fmaf(previous[r], c, -offset[r]));
  }
  const float sum[2] = {exponentiate<0>(s, c, offset[0]), exponentiate<1>(s, c, offset[1])};
  keep_before_wait(sum[0] + sum[1]);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    state.sum[r] = kFirst ? sum[r] : fmaf(state.sum[r], correction[r], sum[r]);
}

/// The weights as A operands of PV: registers 4 k .. 4 k + 3 are keys 16 k .. 16 k + 15.
template <typename E>
__device__ __forceinline__ void pack_weights(const float (&s)[64], std::uint32_t (&p)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack_pair<E>(s[2 * i], s[2 * i + 1]);
}

template <int kSize>
__device__ __forceinline__ void scale_rows(float (&o)[kSize], const float (&factor)[2]) {
#pragma unroll
  for (int j = 0; j < kSize / 4; ++j) {
    o[4 * j] *= factor[0];
    o[4 * j + 1] *= factor[0];
    o[4 * j + 2] *= factor[1];
    o[4 * j + 3] *= factor[1];
  }
}

}  // namespace tandem::kernels::prefill
