// SPDX-License-Identifier: Apache-2.0
// Activations of gated MLPs on the device, in float.
#pragma once

#include "kernels/gate_up_act.h"

namespace tandem::kernels {

/// Not inlined: their code would lie, many times over, in what a kernel has to fetch.
static __device__ __noinline__ float activate_gelu(GateActivation activation, float x) {
  const float y = activation == GateActivation::kGelu
                      ? erff(x * 0.7071067812f)
                      : tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * x * (1.0f + y);
}

__device__ __forceinline__ float activate(GateActivation activation, float x) {
  if (activation == GateActivation::kSilu) return __fdividef(x, 1.0f + __expf(-x));
  return activate_gelu(activation, x);
}

}  // namespace tandem::kernels
