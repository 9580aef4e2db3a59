// SPDX-License-Identifier: Apache-2.0
// Activations of gated MLPs on the device, in float.
#pragma once

#include "kernels/gate_up_act.h"

namespace tandem::kernels {

__device__ __forceinline__ float activate(GateActivation activation, float x) {
  switch (activation) {
    case GateActivation::kSilu:
      return __fdividef(x, 1.0f + __expf(-x));
    case GateActivation::kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case GateActivation::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.7071067812f));
  }
  return x;
}

}  // namespace tandem::kernels
