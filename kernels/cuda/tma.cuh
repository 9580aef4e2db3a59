// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous copies inside kernels: mbarriers, tensor-map loads (TMA) and the fences
// between ordinary accesses and the asynchronous proxy. Thin wrappers, one PTX instruction each
// (PTX ISA 8.x, "mbarrier" and "cp.async.bulk.tensor"); tensor maps are made by `tensor_map.h`.
// An mbarrier completes a phase when all its arrivals came AND all expected bytes landed; a wait
// names the parity of the phase it waits for, so barriers are reused without being reset.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/l2_policy.cuh"
#include "kernels/cuda/shared_address.cuh"

namespace tandem::kernels {

// Barriers are given by pointer or by their address in shared memory.

/// `arrivals` per phase. One thread; then `fence_barrier_init` and a block barrier.
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/// Makes initialised barriers visible to the asynchronous proxy (and to a cluster).
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  barrier_arrive(shared_address(barrier));
}

/// One arrival that also announces `size_bytes` of copies to this barrier.
__device__ __forceinline__ void barrier_arrive_expect(std::uint32_t barrier,
                                                      std::uint32_t size_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(size_bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(std::uint64_t* barrier,
                                                      std::uint32_t size_bytes) {
  barrier_arrive_expect(shared_address(barrier), size_bytes);
}

/// Returns once the phase with this parity is complete; what was written before it is visible.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "waiting:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni finished;\n"
      "bra.uni waiting;\n"
      "finished:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(const std::uint64_t* barrier, std::uint32_t parity) {
  barrier_wait(shared_address(barrier), parity);
}

/// Ordinary writes to shared memory before it are seen by TMA and wgmma after it.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Copies the box at these coordinates (elements, fastest axis first) into shared memory and
/// counts its bytes, those of out-of-range parts (zeros) included, on `barrier`. One thread.
__device__ __forceinline__ void tma_load_3d(void* to, const CUtensorMap* map,
                                            std::uint64_t* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void tma_load_4d(void* to, const CUtensorMap* map,
                                            std::uint64_t* barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ __forceinline__ void tma_load_5d(std::uint32_t to, const CUtensorMap* map,
                                            std::uint32_t barrier, int x, int y, int z, int w,
                                            int v, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "l"(policy)
      : "memory");
}

/// Copies `size_bytes`, a multiple of 16, between places of as many bytes' alignment.
__device__ __forceinline__ void bulk_load(const void* to, const void* from,
                                          std::uint32_t size_bytes, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(size_bytes), "r"(shared_address(barrier))
      : "memory");
}

/// Into the shared memory of every block of the cluster that `blocks` has a bit for, at the offset
/// of `to`, counted on each one's barrier at the offset of `barrier`.
__device__ __forceinline__ void tma_multicast_3d(std::uint32_t to, const CUtensorMap* map,
                                                 std::uint32_t barrier, int x, int y, int z,
                                                 std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

/// Arrives at the barrier of block `block` of the cluster that lies where `barrier` lies here.
/// Orders what the block itself did: released to the cluster it would fence the whole GPU.
__device__ __forceinline__ void barrier_arrive_at(std::uint32_t barrier, unsigned block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

/// The hardware's numbered barriers of a part of a block; 0 is __syncthreads.
__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// All threads of all blocks of the cluster. It orders barriers (after `fence_barrier_init`) and
/// ends; data would need a release, which is a fence of the whole GPU.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Position in a ring of `kStages` buffers, with the parity of the current round.
template <int kStages>
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1u;
    }
  }
};

}  // namespace tandem::kernels
