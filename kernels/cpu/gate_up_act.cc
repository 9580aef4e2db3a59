// SPDX-License-Identifier: Apache-2.0
#include "kernels/gate_up_act.h"

#include <cmath>

#include "kernels/cpu/vec_element.h"
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

using cpu::Floats;

/// tanh(u) = 1 - 2 / (1 + e^2u), so that 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u).
template <GateActivation activation>
Floats activate(Floats x) {
  if constexpr (activation == GateActivation::kSilu)
    return x / (1.0f + cpu::exponential(-x));
  else if constexpr (activation == GateActivation::kGeluTanh)
    return x / (1.0f + cpu::exponential(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
  for (int i = 0; i < cpu::kFloats; ++i)
    x[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.7071067811865476f));
  return x;
}

/// One block of 16 gates and 16 ups. `bias` of both, or null.
template <GateActivation activation, typename T>
void act_block(const T* gate, const float* bias, T* out) {
  const T* up = gate + kGateUpInterleave;
  for (int i = 0; i < kGateUpInterleave; i += cpu::kFloats) {
    Floats g = cpu::load_floats(gate + i), u = cpu::load_floats(up + i);
    if (bias != nullptr) {
      g += cpu::load<Floats>(bias + i);
      u += cpu::load<Floats>(bias + kGateUpInterleave + i);
    }
    cpu::store_floats(out + i, activate<activation>(g) * u);
  }
}

template <GateActivation activation, typename T>
void act(const GateUpArgs<T, Cpu>& args) {
  const std::int64_t blocks = args.out.cols / kGateUpInterleave;
#pragma omp parallel for collapse(2) if (args.out.rows > 1)
  for (std::int64_t row = 0; row < args.out.rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t column = 2 * block * kGateUpInterleave;
      act_block<activation>(args.scratch.row(row) + column,
                            args.bias == nullptr ? nullptr : args.bias + column,
                            args.out.row(row) + block * kGateUpInterleave);
    }
}

}  // namespace

template <typename T>
void gate_up_act(Context<Cpu>& ctx, const GateUpArgs<T, Cpu>& args) {
  matmul<T, T>(ctx, args.x, *args.weight, args.scratch);
  switch (args.activation) {
    case GateActivation::kSilu:
      return act<GateActivation::kSilu>(args);
    case GateActivation::kGeluTanh:
      return act<GateActivation::kGeluTanh>(args);
    case GateActivation::kGelu:
      return act<GateActivation::kGelu>(args);
  }
}

template void gate_up_act(Context<Cpu>&, const GateUpArgs<float, Cpu>&);
template void gate_up_act(Context<Cpu>&, const GateUpArgs<BFloat16, Cpu>&);
template void gate_up_act(Context<Cpu>&, const GateUpArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
