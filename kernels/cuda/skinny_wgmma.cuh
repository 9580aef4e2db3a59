// SPDX-License-Identifier: Apache-2.0
// wgmma of m64nNk16 with both operands in shared memory, K-major, 128-byte swizzle, for the few
// columns N = 16, 32 or 64 of a skinny matmul: d[64 x N] += a[64 x 16] b[N x 16]^T. Asynchronous;
// descriptors, fences and the layout of d: attend_prefill_wgmma.cuh.
#pragma once

#include "kernels/cuda/attend_prefill_wgmma.cuh"

namespace tandem::kernels {

#define TANDEM_D8(i)                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TANDEM_SKINNY(N, TYPE, LIST, A, B, ...)                                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" LIST "}, " A \
               ", " B ", 1, 1, 1, 0, 0;\n"                                                      \
               : __VA_ARGS__                                                                    \
               : "l"(a), "l"(b))
#define TANDEM_LIST8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TANDEM_LIST16 TANDEM_LIST8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TANDEM_LIST32                                                        \
  TANDEM_LIST16                                                              \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"

template <typename E>
__device__ __forceinline__ void wgmma_skinny(float (&d)[8], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    TANDEM_SKINNY("16", "bf16", TANDEM_LIST8, "%8", "%9", TANDEM_D8(0));
  else
    TANDEM_SKINNY("16", "f16", TANDEM_LIST8, "%8", "%9", TANDEM_D8(0));
}
template <typename E>
__device__ __forceinline__ void wgmma_skinny(float (&d)[16], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    TANDEM_SKINNY("32", "bf16", TANDEM_LIST16, "%16", "%17", TANDEM_D8(0), TANDEM_D8(8));
  else
    TANDEM_SKINNY("32", "f16", TANDEM_LIST16, "%16", "%17", TANDEM_D8(0), TANDEM_D8(8));
}
template <typename E>
__device__ __forceinline__ void wgmma_skinny(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<E, __nv_bfloat16>)
    TANDEM_SKINNY("64", "bf16", TANDEM_LIST32, "%32", "%33", TANDEM_D8(0), TANDEM_D8(8),
                  TANDEM_D8(16), TANDEM_D8(24));
  else
    TANDEM_SKINNY("64", "f16", TANDEM_LIST32, "%32", "%33", TANDEM_D8(0), TANDEM_D8(8),
                  TANDEM_D8(16), TANDEM_D8(24));
}

#undef TANDEM_D8
#undef TANDEM_SKINNY
#undef TANDEM_LIST8
#undef TANDEM_LIST16
#undef TANDEM_LIST32

}  // namespace tandem::kernels
