// SPDX-License-Identifier: Apache-2.0
// What is evicted from L2 first (PTX ISA, "createpolicy"). A decode step reads many times more
// weights, keys and values than L2 holds, each once. As the first to be evicted they leave L2 to
// what every layer needs again and would wait for memory for, mostly right at a kernel's start:
// its code, arguments and tensor maps, and the activations. On an H200 that alone made a step of
// Llama-3-8B 0.5 to 2 % shorter, with 1 to 32 rows and shards of TP 1 to 8. Device code only.
#pragma once

#include <cstdint>

namespace tandem::kernels {

using L2Policy = std::uint64_t;

/// Of what is read once a step.
__device__ __forceinline__ L2Policy read_once() {
  L2Policy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ L2Policy read_again() {
  L2Policy policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

}  // namespace tandem::kernels
