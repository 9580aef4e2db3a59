// SPDX-License-Identifier: Apache-2.0
// One-instruction wrappers (PTX ISA): asynchronous copies to shared memory, ldmatrix, and
// mma.m16n8k16 with float accumulation. Device code only.
//
// Fragments, with g = lane / 4 and t = lane % 4. A [16, 16]: a0 (g, 2t..), a1 (g + 8, 2t..),
// a2 (g, 2t + 8..), a3 (g + 8, 2t + 8..). B [16, 8]: b0 (k 2t.., n g), b1 (k 2t + 8.., n g).
// C [16, 8]: c0 c1 (g, 2t..), c2 c3 (g + 8, 2t..).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/l2_policy.cuh"
#include "kernels/cuda/shared_address.cuh"

namespace tandem::kernels {

/// Copies 16 bytes, or writes 16 zero bytes when `take` is false.
__device__ __forceinline__ void copy16_async(std::uint32_t shared, const void* global, bool take) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(take ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy16_async(void* shared, const void* global, bool take) {
  copy16_async(shared_address(shared), global, take);
}
__device__ __forceinline__ void copy16_async(std::uint32_t shared, const void* global, bool take,
                                             L2Policy policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared),
               "l"(global), "r"(take ? 16 : 0), "l"(policy)
               : "memory");
}
/// The same, always, to an address in shared memory.
__device__ __forceinline__ void copy16_async(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void copy16_async(std::uint32_t shared, const void* global,
                                             L2Policy policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(global), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kPending groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* shared) {
  load_matrices(r, shared_address(shared));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4],
                                                         std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4],
                                                         const void* shared) {
  load_matrices_transposed(r, shared_address(shared));
}

/// c += a b
template <typename E>
__device__ __forceinline__ void mma16816(float (&c)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  if constexpr (__is_same(E, __nv_bfloat16)) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace tandem::kernels
