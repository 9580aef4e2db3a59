// SPDX-License-Identifier: Apache-2.0
#include "kernels/gate_up_act.h"

#include <cmath>

#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

float activate(GateActivation activation, float x) {
  switch (activation) {
    case GateActivation::kSilu:
      return x / (1.0f + std::exp(-x));
    case GateActivation::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case GateActivation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.7071067811865476f));
  }
  return x;
}

}  // namespace

template <typename T>
void gate_up_act(Context<Cpu>& ctx, const GateUpArgs<T, Cpu>& args) {
  matmul<T, T>(ctx, args.x, *args.weight, args.scratch);
  const std::int64_t blocks = args.out.cols / kGateUpInterleave;
#pragma omp parallel for collapse(2)
  for (std::int64_t row = 0; row < args.out.rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t gate_column = 2 * block * kGateUpInterleave;
      const T* gate = args.scratch.row(row) + gate_column;
      const T* up = gate + kGateUpInterleave;
      T* out = args.out.row(row) + block * kGateUpInterleave;
      for (int i = 0; i < kGateUpInterleave; ++i) {
        const float* bias = args.bias == nullptr ? nullptr : args.bias + gate_column + i;
        const float g = static_cast<float>(gate[i]) + (bias == nullptr ? 0.0f : bias[0]);
        const float u =
            static_cast<float>(up[i]) + (bias == nullptr ? 0.0f : bias[kGateUpInterleave]);
        out[i] = T(activate(args.activation, g) * u);
      }
    }
}

template void gate_up_act(Context<Cpu>&, const GateUpArgs<float, Cpu>&);
template void gate_up_act(Context<Cpu>&, const GateUpArgs<BFloat16, Cpu>&);
template void gate_up_act(Context<Cpu>&, const GateUpArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
