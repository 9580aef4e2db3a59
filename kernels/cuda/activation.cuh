// SPDX-License-Identifier: Apache-2.0
// Activations of gated MLPs on the device, in float.
#pragma once

#include "kernels/gate_up_act.h"

namespace tandem::kernels {

__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
/// By the error function or, the other kind, by its approximation.
__device__ __forceinline__ float gelu(GateActivation kind, float x) {
  const float y = kind == GateActivation::kGelu
                      ? erff(x * 0.7071067812f)
                      : tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * x * (1.0f + y);
}
/// Their code would lie, many times over, in what a kernel of few microseconds has to fetch.
__device__ __noinline__ inline float call_gelu(GateActivation kind, float x) {
  return gelu(kind, x);
}

/// Where the activation is known when the kernel is compiled.
__device__ __forceinline__ float activate(GateActivation activation, float x) {
  return activation == GateActivation::kSilu ? silu(x) : gelu(activation, x);
}
/// Where the kernel is told which it is.
__device__ __forceinline__ float activate_any(GateActivation activation, float x) {
  if (activation == GateActivation::kSilu) return silu(x);
  return call_gelu(activation, x);
}

}  // namespace tandem::kernels
