// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster writing to each other's shared memory (PTX ISA, "mapa", "st.async"): thin
// wrappers. A store travels with its own count of bytes to the receiver's mbarrier, so that nobody
// waits for a fence. Clusters lie along x of the grid. Device code only.
#pragma once

#include "kernels/cuda/tma.cuh"

namespace tandem::kernels {

/// Where an address of this block's shared memory lies in block `rank`.
__device__ __forceinline__ std::uint32_t cluster_address(const void* shared, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(shared_address(shared)), "r"(rank));
  return there;
}

/// Both addresses are those of the same block, from cluster_address; 8 bytes for its barrier.
__device__ __forceinline__ void cluster_store(std::uint32_t to, float2 value,
                                              std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

}  // namespace tandem::kernels
