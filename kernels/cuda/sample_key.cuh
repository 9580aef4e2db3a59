// SPDX-License-Identifier: Apache-2.0
// Order of tokens by value, lower id first at equal value, as one unsigned 64-bit key; and the
// noise of Gumbel-max sampling, with the same bits as on the CPU. Device code only.
#pragma once

#include <cstdint>

#include "kernels/cuda/numeric.cuh"
#include "kernels/philox.h"
#include "kernels/sample.h"

namespace tandem::kernels {

using TokenKey = unsigned long long;  // what CUDA's 64-bit atomics take

/// Larger is better; no two tokens of a row have the same key. NaN has no place: test before.
__device__ __forceinline__ TokenKey token_key(float value, std::int32_t id) {
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes +0
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<TokenKey>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}
__device__ __forceinline__ Candidate candidate_of(TokenKey key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t bits = ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered;
  return {__uint_as_float(bits),
          static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key))};
}
/// Below every token's key: what the CPU reports when nothing but NaN is there.
__device__ __forceinline__ TokenKey no_token() { return token_key(-INFINITY, 0x7fffffff); }

/// -log(-log(1 - u)), as on the CPU.
__device__ __forceinline__ float gumbel(std::uint32_t word) {
  const float u = fminf(unit_interval(word), 0.99999994f);
  return -logf(-log1pf(-u));
}

__device__ __forceinline__ TokenKey warp_best(TokenKey key) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) {
    const TokenKey other = __shfl_xor_sync(0xffffffffu, key, mask);
    key = other > key ? other : key;
  }
  return key;
}

/// Best key of the block, given to every thread. `scratch` [32]; may be used again at once.
__device__ __forceinline__ TokenKey block_best(TokenKey key, TokenKey* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  key = warp_best(key);
  if (lane == 0) scratch[warp] = key;
  __syncthreads();
  key = warp_best(lane < warps ? scratch[lane] : 0);
  __syncthreads();
  return key;
}

}  // namespace tandem::kernels
