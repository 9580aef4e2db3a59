// SPDX-License-Identifier: Apache-2.0
// The sum over all threads of the block, or the cluster of blocks, that holds a row of which a norm
// is taken. Device code only; every thread makes the same calls.
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {

/// Sums over all threads of a block or a cluster, with equal bits in all of them. In a cluster
/// every warp stores its sum into every block's memory, and each block's mbarrier counts the bytes:
/// a cluster barrier that released data would be a fence of the whole GPU, which waits for all
/// that its kernels have under way to the peers. Two sets of slots and barriers alternate: whoever
/// stores for sum k + 2 has sum k + 1 of everybody, so all have read sum k. A block ends after it
/// heard of all warps, so nobody stores into a block that is gone.
struct RowSum {
  static constexpr int kWarps = 16, kSlots = 8 * kWarps;
  union {
    float4 warps[2][kWarps / 4];  ///< Of one block.
    float2 slots[2][kSlots];      ///< Of a cluster; the second halves are not used.
  };
  std::uint64_t barriers[2];

  /// By all threads, once; `join` before the first sum.
  __device__ void begin(std::int32_t blocks) {
    if (blocks > 1 && threadIdx.x == 0) {
      barrier_init(&barriers[0], 1);
      barrier_init(&barriers[1], 1);
      fence_barrier_init();
      expect(&barriers[0], blocks);
      expect(&barriers[1], blocks);
    }
    if (blocks == 1 && threadIdx.x < 2 * kWarps)
      reinterpret_cast<float*>(warps)[threadIdx.x] = 0.0f;  // There may be fewer warps.
    __syncthreads();
    if (blocks > 1) cluster_arrive();
  }
  /// The barriers of all blocks are there behind it.
  __device__ void join(std::int32_t blocks) const {
    if (blocks > 1) cluster_wait();
  }

  /// Sum number `call`, from 0 on.
  __device__ float sum(float value, std::uint32_t call, std::int32_t blocks) {
    value = warp_sum(value);
    return blocks == 1 ? block_sum(value, call & 1) : cluster_sum(value, call, blocks);
  }

 private:
  static __device__ void expect(std::uint64_t* barrier, std::int32_t blocks) {
    barrier_arrive_expect(barrier, static_cast<std::uint32_t>(blocks) * (blockDim.x / 32) *
                                       static_cast<std::uint32_t>(sizeof(float2)));
  }
  __device__ float block_sum(float value, std::uint32_t set) {
    if (threadIdx.x % 32 == 0) reinterpret_cast<float*>(warps[set])[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (const float4& four : warps[set]) total += (four.x + four.y) + (four.z + four.w);
    return total;
  }
  __device__ float cluster_sum(float value, std::uint32_t call, std::int32_t blocks) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int count = static_cast<int>(blockDim.x) / 32;
    const int slot = static_cast<int>(blockIdx.x) % blocks * count + warp;
    const std::uint32_t set = call & 1;
    if (lane < blocks)
      cluster_store(cluster_address(&slots[set][slot], lane), make_float2(value, 0.0f),
                    cluster_address(&barriers[set], lane));
    barrier_wait(&barriers[set], call >> 1 & 1);
    if (threadIdx.x == 0) expect(&barriers[set], blocks);
    float total = 0.0f;
#pragma unroll 1
    for (int i = lane; i < blocks * count; i += 32) total += slots[set][i].x;
    return warp_sum(total);
  }
};

}  // namespace tandem::kernels
