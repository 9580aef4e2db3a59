// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels: PDL launch shape, packed pairs, vectors, reductions over a warp and a
// block.
#pragma once

#include <cstdint>

#include "kernels/device/cuda/dtype.cuh"
#include "kernels/device/cuda/launch.cuh"

namespace tandem::kernels {

/// The shape of a kernel that keeps the PDL rule of launch.cuh.
inline LaunchShape dependent(dim3 grid, dim3 block, std::size_t shared_bytes = 0) {
  return {grid, block, shared_bytes, true, 1};
}

/// Two packed elements of one register as floats; the lower half is `x`.
template <typename E>
__device__ __forceinline__ float2 unpack2(std::uint32_t pair) {
  if constexpr (__is_same(E, __nv_bfloat16)) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  }
}

template <typename E>
__device__ __forceinline__ std::uint32_t pack2(float low, float high) {
  if constexpr (__is_same(E, __nv_bfloat16)) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

/// N elements moved with as few instructions as the hardware has.
template <typename E, int N>
struct alignas(sizeof(E) * N) Vec {
  E at[N];
};
template <typename E>
inline constexpr int kVecElements = 16 / static_cast<int>(sizeof(E));

template <typename E, int N>
__device__ __forceinline__ Vec<E, N> load_vec(const E* p) {
  return *reinterpret_cast<const Vec<E, N>*>(p);
}
template <typename E, int N>
__device__ __forceinline__ void store_vec(E* p, const Vec<E, N>& v) {
  *reinterpret_cast<Vec<E, N>*>(p) = v;
}

inline bool aligned_to(const void* p, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

/// Division by a number that is only known at run time.
struct FastDivisor {
  int by;
  unsigned inverse;  ///< 2^32 / by, rounded up; 0: by is 1.
  __host__ __device__ explicit FastDivisor(int number)
      : by(number), inverse(number == 1 ? 0 : 0xffffffffu / static_cast<unsigned>(number) + 1) {}
  /// Exact for 0 <= i < 2^32 / by.
  __device__ int divide(int i) const {
    return inverse == 0 ? i : static_cast<int>(__umulhi(static_cast<unsigned>(i), inverse));
  }
};

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
  return x;
}

/// Sum over the block, given to every thread. `scratch` [32]; may be used again at once.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
  x = warp_sum(x);
  if (warps == 1) return x;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? scratch[lane] : 0.0f);
  __syncthreads();
  return x;
}

}  // namespace tandem::kernels
