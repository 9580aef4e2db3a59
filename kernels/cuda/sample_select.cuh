// SPDX-License-Identifier: Apache-2.0
// Finds, for one row of logits and one block, the key of the last token that top-k or top-p keeps:
// exactly, ties included, without sorting the row. One pass puts the weights (a count, or a
// probability in fixed point, so that the order of atomics does not matter) into bins by distance
// from the maximum; the bin where the target is reached is sorted in shared memory. When that bin
// does not fit (many equal logits) the key is found bit by bit. Device code only.
#pragma once

#include "kernels/cuda/sample_key.cuh"

namespace tandem::kernels {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectBins = 2 * kSelectThreads;
inline constexpr int kSelectSorted = 2048;
inline constexpr float kBinsPerUnit = kSelectBins / 40.0f;
inline constexpr double kMassOne = 17592186044416.0;  // 2^44: 2^17 tokens of it fit in 64 bits

struct SelectShared {
  unsigned long long bins[kSelectBins];  ///< Then the weights of `keys`.
  TokenKey keys[kSelectSorted];
  unsigned long long scratch[32];
  double scratch_double[32];
  unsigned long long before, total, answer;
  int bin, num_keys;
};

/// A row at its temperature. Tokens that are kept have value >= floor and key >= limit.
struct SelectRow {
  const float* logits;
  int size;
  float temperature, maximum, floor;
  TokenKey limit;
  bool keep_all;  ///< Forbidden tokens (-infinity) count as well.

  __device__ float value(int i) const {
    return temperature == 1.0f ? logits[i] : logits[i] / temperature;
  }
  __device__ bool kept(float v, int i) const {
    return v >= floor && (keep_all || v > -INFINITY) && token_key(v, i) >= limit;
  }
  __device__ int bin(float v) const {
    return static_cast<int>(fminf((maximum - v) * kBinsPerUnit, kSelectBins - 1.0f));
  }
};

struct CountWeight {
  __device__ unsigned long long operator()(float) const { return 1; }
};
/// exp(value - maximum) in units of 1 / kMassOne.
struct MassWeight {
  float maximum;
  __device__ unsigned long long operator()(float v) const {
    return static_cast<unsigned long long>(exp(static_cast<double>(v) - maximum) * kMassOne + 0.5);
  }
};

__device__ __forceinline__ unsigned long long block_total(unsigned long long x, SelectShared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask);
  if (lane == 0) s.scratch[warp] = x;
  __syncthreads();
  x = s.scratch[lane];
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask);
  __syncthreads();
  return x;
}

/// Sum over lanes up to and including this one.
__device__ __forceinline__ unsigned long long warp_prefix(unsigned long long x) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const unsigned long long other = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

/// Fills `bins` and `total`.
template <typename Weight>
__device__ void fill_bins(const SelectRow& row, const Weight& weight, SelectShared& s) {
  for (int i = threadIdx.x; i < kSelectBins; i += kSelectThreads) s.bins[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < row.size; i += kSelectThreads) {
    const float v = row.value(i);
    if (row.kept(v, i)) atomicAdd(&s.bins[row.bin(v)], weight(v));
  }
  __syncthreads();
  s.total = block_total(s.bins[2 * threadIdx.x] + s.bins[2 * threadIdx.x + 1], s);
  __syncthreads();
}

/// Sets `bin` to the first whose running sum reaches `target`, and `before` to the sum before it.
__device__ __forceinline__ void find_bin(unsigned long long target, SelectShared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned long long first = s.bins[2 * threadIdx.x], second = s.bins[2 * threadIdx.x + 1];
  const unsigned long long within = warp_prefix(first + second);
  if (lane == 31) s.scratch[warp] = within;
  __syncthreads();
  if (warp == 0) {
    const unsigned long long sum = s.scratch[lane];
    s.scratch[lane] = warp_prefix(sum) - sum;
  }
  __syncthreads();
  const unsigned long long start = s.scratch[warp] + within - first - second;
  if (start < target && start + first >= target) {
    s.bin = 2 * threadIdx.x;
    s.before = start;
  } else if (start + first < target && start + first + second >= target) {
    s.bin = 2 * threadIdx.x + 1;
    s.before = start + first;
  }
  __syncthreads();
}

/// Collects the kept keys of `bin`; false when they do not fit.
__device__ __forceinline__ bool collect_bin(const SelectRow& row, SelectShared& s) {
  if (threadIdx.x == 0) s.num_keys = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < row.size; i += kSelectThreads) {
    const float v = row.value(i);
    if (!row.kept(v, i) || row.bin(v) != s.bin) continue;
    const int at = atomicAdd(&s.num_keys, 1);
    if (at < kSelectSorted) s.keys[at] = token_key(v, i);
  }
  __syncthreads();
  return s.num_keys <= kSelectSorted;
}

/// Sorts `keys`, largest first (bitonic, Batcher 1968).
__device__ __forceinline__ void sort_keys(SelectShared& s) {
  int size = 2;
  while (size < s.num_keys) size *= 2;
  for (int i = s.num_keys + threadIdx.x; i < size; i += kSelectThreads) s.keys[i] = 0;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2)
    for (int gap = run / 2; gap > 0; gap /= 2) {
      for (int t = threadIdx.x; t < size / 2; t += kSelectThreads) {
        const int low = 2 * t - t % gap, high = low + gap;
        const bool descending = (low & run) == 0;
        const TokenKey a = s.keys[low], b = s.keys[high];
        if ((a < b) == descending) {
          s.keys[low] = b;
          s.keys[high] = a;
        }
      }
      __syncthreads();
    }
}

/// Key in the sorted bin at which before + weights reach `target`.
template <typename Weight>
__device__ TokenKey reach_in_bin(unsigned long long target, const Weight& weight, SelectShared& s) {
  for (int i = threadIdx.x; i < s.num_keys; i += kSelectThreads)
    s.bins[i] = weight(candidate_of(s.keys[i]).value);
  __syncthreads();
  if (threadIdx.x < 32) {
    unsigned long long sum = s.before;
    int found = -1;
    for (int base = 0; base < s.num_keys && found < 0; base += 32) {
      const int i = base + threadIdx.x;
      const unsigned long long prefix = sum + warp_prefix(i < s.num_keys ? s.bins[i] : 0);
      const unsigned votes = __ballot_sync(0xffffffffu, i < s.num_keys && prefix >= target);
      if (votes != 0) found = base + __ffs(votes) - 1;
      sum = __shfl_sync(0xffffffffu, prefix, 31);
    }
    if (threadIdx.x == 0) s.answer = s.keys[found < 0 ? s.num_keys - 1 : found];
  }
  __syncthreads();
  return s.answer;
}

/// The largest key such that the kept tokens at or above it weigh `target`, bit by bit.
template <typename Weight>
__device__ TokenKey reach_by_bits(const SelectRow& row, unsigned long long target,
                                  const Weight& weight, SelectShared& s) {
  TokenKey key = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const TokenKey trial = key | TokenKey{1} << bit;
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < row.size; i += kSelectThreads) {
      const float v = row.value(i);
      if (row.kept(v, i) && token_key(v, i) >= trial) sum += weight(v);
    }
    if (block_total(sum, s) >= target) key = trial;
  }
  return key;
}

/// Key of the token with which the largest kept ones reach `target`; `fill_bins` came before.
template <typename Weight>
__device__ TokenKey reach(const SelectRow& row, unsigned long long target, const Weight& weight,
                          SelectShared& s) {
  find_bin(target, s);
  if (!collect_bin(row, s)) return reach_by_bits(row, target, weight, s);
  sort_keys(s);
  return reach_in_bin(target, weight, s);
}

}  // namespace tandem::kernels
