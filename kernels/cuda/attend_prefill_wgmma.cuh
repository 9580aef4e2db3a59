// SPDX-License-Identifier: Apache-2.0
// The two matrix products of prefill attention as Hopper `wgmma` instructions: S = Q K^T with both
// operands in shared memory, O += P V with P in registers. Asynchronous: between issue and
// `wgmma_wait` the registers named in the instruction belong to the tensor cores.
//
// A warpgroup (128 threads) owns 64 rows. Accumulator of m64nN: thread t of the warpgroup holds
// row 16 * (t / 32) + (t % 32) / 4 (+ 8) and columns 8 j + 2 (t % 4) (+ 1):
//   d[4 j + 0, 4 j + 1] = the two columns of the first row, d[4 j + 2, 4 j + 3] of the row + 8.
// The A operand of m64k16 in registers has the same shape, so 16 columns of S, packed to 16 bits,
// are one A operand: that is why P never goes through shared memory.
//
// A matrix descriptor (PTX ISA, "Matrix descriptor format") describes an operand in shared memory:
//   bits  0-13  start address / 16
//   bits 16-29  leading byte offset (LBO) / 16
//   bits 32-45  stride byte offset (SBO) / 16
//   bits 62-63  swizzle: 1 = 128 bytes
// All our tiles have rows of 128 bytes (64 elements), swizzled in groups of 8 rows = 1024 bytes.
//   K-major (Q, K: a row holds the summed axis): SBO = 1024 steps to the next 8 rows; LBO is not
//     used; 16 further elements of the summed axis are start address + 32 bytes, as long as they
//     stay inside the 128-byte row; the next 64 elements are another half tile.
//   MN-major (V: a row holds the output axis, rows are summed over; the "transposed" B operand):
//     SBO = 1024 steps to the next 8 summed rows; LBO steps to the next 64 output columns, which
//     is the next half tile; 16 further summed rows are start address + 2048 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tandem::kernels {

inline constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kEightRows = std::uint64_t{1024 >> 4} << 32;

__device__ __forceinline__ std::uint64_t k_major_descriptor(std::uint32_t shared_address) {
  return kSwizzle128 | kEightRows | (std::uint64_t{1} << 16) | ((shared_address & 0x3FFFFu) >> 4);
}

__device__ __forceinline__ std::uint64_t mn_major_descriptor(std::uint32_t shared_address,
                                                             std::uint32_t half_tile_bytes) {
  return kSwizzle128 | kEightRows | (std::uint64_t{half_tile_bytes >> 4} << 16) |
         ((shared_address & 0x3FFFFu) >> 4);
}

/// Orders earlier register writes before the next wgmma of this warpgroup.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `kPending` committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving accesses of these registers over this point: it knows nothing of
/// the asynchronous owner.
template <typename R, int kSize>
__device__ __forceinline__ void pin_registers(R (&registers)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    if constexpr (std::is_same_v<R, float>)
      asm volatile("" : "+f"(registers[i])::"memory");
    else
      asm volatile("" : "+r"(registers[i])::"memory");
  }
}

#define TANDEM_F8(d, i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TANDEM_F32(d, i) \
  TANDEM_F8(d, i), TANDEM_F8(d, i + 8), TANDEM_F8(d, i + 16), TANDEM_F8(d, i + 24)
#define TANDEM_F64(d) TANDEM_F32(d, 0), TANDEM_F32(d, 32)
#define TANDEM_LIST32                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TANDEM_LIST64                                                                  \
  TANDEM_LIST32                                                                        \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define TANDEM_WGMMA_QK(TYPE)                                                         \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" TANDEM_LIST64 \
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"                                              \
      : TANDEM_F64(s)                                                                 \
      : "l"(q), "l"(k), "r"(accumulate))

/// s[64 x 128] (+)= q[64 x 16] k[128 x 16]^T, both K-major descriptors.
template <typename E>
__device__ __forceinline__ void wgmma_qk(float (&s)[64], std::uint64_t q, std::uint64_t k,
                                         int accumulate) {
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    TANDEM_WGMMA_QK("bf16");
  else
    TANDEM_WGMMA_QK("f16");
}

#define TANDEM_WGMMA_PV128(TYPE)                                                      \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                      \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" TANDEM_LIST64 \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"                                \
      : TANDEM_F64(o)                                                                 \
      : "r"(p0), "r"(p1), "r"(p2), "r"(p3), "l"(v))
#define TANDEM_WGMMA_PV64(TYPE)                                                      \
  asm volatile(                                                                      \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" TANDEM_LIST32 \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"                               \
      : TANDEM_F32(o, 0)                                                             \
      : "r"(p0), "r"(p1), "r"(p2), "r"(p3), "l"(v))

/// o[64 x head_dim] += p[64 x 16] v[16 x head_dim]: p in registers, v an MN-major descriptor.
template <typename E>
__device__ __forceinline__ void wgmma_pv(float (&o)[64], std::uint32_t p0, std::uint32_t p1,
                                         std::uint32_t p2, std::uint32_t p3, std::uint64_t v) {
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    TANDEM_WGMMA_PV128("bf16");
  else
    TANDEM_WGMMA_PV128("f16");
}
template <typename E>
__device__ __forceinline__ void wgmma_pv(float (&o)[32], std::uint32_t p0, std::uint32_t p1,
                                         std::uint32_t p2, std::uint32_t p3, std::uint64_t v) {
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    TANDEM_WGMMA_PV64("bf16");
  else
    TANDEM_WGMMA_PV64("f16");
}

#undef TANDEM_F8
#undef TANDEM_F32
#undef TANDEM_F64
#undef TANDEM_LIST32
#undef TANDEM_LIST64
#undef TANDEM_WGMMA_QK
#undef TANDEM_WGMMA_PV128
#undef TANDEM_WGMMA_PV64

/// Two floats rounded to 16 bits, the first in the low half.
template <typename E>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace tandem::kernels
