// SPDX-License-Identifier: Apache-2.0
// Runs of float parameters (norm weights, biases, cosines) beside vectors of activations. Device
// code only.
#pragma once

namespace tandem::kernels {

/// N floats, 16 bytes at a time where N allows; then `from` is aligned to 16 bytes.
template <int N>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = from[i];
  }
}

}  // namespace tandem::kernels
