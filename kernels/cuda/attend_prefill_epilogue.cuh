// SPDX-License-Identifier: Apache-2.0
// From accumulators to the output rows: normalise, round once, regroup through shared memory so
// that a warp stores whole rows in 16-byte pieces, and leave out rows past the segment's end. Each
// warp handles its own 16 rows, so no barrier with other warps is needed.
#pragma once

#include "kernels/cuda/attend_prefill_softmax.cuh"
#include "kernels/cuda/attend_prefill_tile.cuh"
#include "kernels/cuda/tma.cuh"

namespace tandem::kernels::prefill {

inline constexpr int kWarpRows = 16;
inline constexpr int kCombineWarps = 4;

/// Four 8x8 matrices of 16-bit pairs; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(std::uint32_t address, std::uint32_t a,
                                               std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// `sum` is the thread's share; a row without keys gets zeros. `staging` is this warp's 16 rows.
template <typename E, int kHeadDim>
__device__ __forceinline__ void write_output(const Params& params, const Work& work, int warp,
                                             float (&o)[kHeadDim / 2], const float (&sum)[2],
                                             std::uint8_t* staging) {
  constexpr int kUnits = kHeadDim / 8;  // 16-byte units of a row
  const int lane = threadIdx.x % kWarp;
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = quad_sum(sum[r]);
    factor[r] = total == 0.0f ? 0.0f : 1.0f / total;
  }
  scale_rows(o, factor);

  __syncwarp();  // the warp's reads of the previous work are done
  const int own_row = lane % 16, own_unit = lane / 16;
  const std::uint32_t base = shared_address(staging) + own_row * kHeadDim * 2;
#pragma unroll
  for (int j = 0; j < kHeadDim / 16; ++j) {
    const int unit = (2 * j + own_unit) ^ (own_row % 8);
    store_matrices(base + unit * 16, pack_pair<E>(o[8 * j], o[8 * j + 1]),
                   pack_pair<E>(o[8 * j + 2], o[8 * j + 3]),
                   pack_pair<E>(o[8 * j + 4], o[8 * j + 5]),
                   pack_pair<E>(o[8 * j + 6], o[8 * j + 7]));
  }
  __syncwarp();

  const int unit = lane % kUnits;
  E* out = static_cast<E*>(params.out) + std::int64_t{work.head} * kHeadDim + unit * 8;
#pragma unroll
  for (int i = 0; i < kWarpRows * kUnits / kWarp; ++i) {
    const int row = i * (kWarp / kUnits) + lane / kUnits, tile_row = warp * kWarpRows + row;
    const uint4 piece =
        *reinterpret_cast<const uint4*>(staging + (row * kUnits + (unit ^ (row % 8))) * 16);
    if (tile_row < work.rows)
      *reinterpret_cast<uint4*>(out + (work.row + tile_row) * params.out_stride) = piece;
  }
}

/// The split's share of the rows, as it is.
template <int kHeadDim>
__device__ __forceinline__ void write_partial(const Params& params, const Work& work, int warp,
                                              const float (&o)[kHeadDim / 2],
                                              const SoftmaxState& softmax) {
  const int lane = threadIdx.x % kWarp;
  const float total[2] = {quad_sum(softmax.sum[0]), quad_sum(softmax.sum[1])};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int tile_row = warp * kWarpRows + lane / 4 + 8 * r;
    if (tile_row >= work.rows) continue;
    const std::int64_t row = work.row - params.first_row + tile_row;
    const std::int64_t part = (row * params.num_q_heads + work.head) * params.splits + work.split;
    float* to = params.partial + part * kHeadDim + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j)
      *reinterpret_cast<float2*>(to + 8 * j) = {o[4 * j + 2 * r], o[4 * j + 2 * r + 1]};
    if (lane % 4 == 0)
      params.partial_stats[part] = {softmax.maximum[r] * params.scale_log2, total[r]};
  }
}

/// One warp per row and head: joins the splits. Rows without keys get zeros.
template <typename E, int kHeadDim>
__global__ void __launch_bounds__(kCombineWarps* kWarp)
    combine_splits_kernel(const __grid_constant__ Params params, std::int64_t num_parts) {
  constexpr int kLane = kHeadDim / kWarp;  // columns of a lane
  const int lane = threadIdx.x % kWarp;
  const std::int64_t index = std::int64_t{blockIdx.x} * kCombineWarps + threadIdx.x / kWarp;
  if (index >= num_parts) return;
  const float2* stats = params.partial_stats + index * params.splits;
  float top = kMinusInfinity, total = 0.0f;
  for (int s = 0; s < params.splits; ++s) top = fmaxf(top, stats[s].x);
  float sum[kLane] = {};
  for (int s = 0; s < params.splits && top > kMinusInfinity; ++s) {
    const float weight = exp2_fast(stats[s].x - top);
    total += weight * stats[s].y;
    const float* from = params.partial + (index * params.splits + s) * kHeadDim + lane * kLane;
#pragma unroll
    for (int j = 0; j < kLane; ++j) sum[j] += weight * from[j];
  }
  const float factor = total == 0.0f ? 0.0f : 1.0f / total;
  const std::int64_t row = params.first_row + index / params.num_q_heads;
  E* out = static_cast<E*>(params.out) + row * params.out_stride +
           index % params.num_q_heads * kHeadDim + lane * kLane;
#pragma unroll
  for (int j = 0; j < kLane; j += 2)
    *reinterpret_cast<std::uint32_t*>(out + j) = pack_pair<E>(sum[j] * factor, sum[j + 1] * factor);
}

}  // namespace tandem::kernels::prefill
