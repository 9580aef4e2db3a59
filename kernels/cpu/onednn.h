// SPDX-License-Identifier: Apache-2.0
// Matrix products through oneDNN, where it is found and fast on this CPU. One object per weight; it
// keeps the primitives made for it, and views the weight.
#pragma once

#include <memory>

#include "kernels/device/buffer.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels::cpu {

/// y `[M, N]` = x `[M, K]` W^T. T is float (W row-major `[N, K]`) or BFloat16 (W packed).
template <typename T>
class OneDnnMatmul {
 public:
  OneDnnMatmul();
  OneDnnMatmul(OneDnnMatmul&&) noexcept;
  OneDnnMatmul& operator=(OneDnnMatmul&&) noexcept;
  ~OneDnnMatmul();

  /// False, with y untouched, when oneDNN has no fast kernel here: built without it, or bfloat16 on
  /// a CPU without bfloat16 instructions.
  template <typename Out>
  bool multiply(TensorView<const T, Cpu> x, const T* weight, TensorView<Out, Cpu> y);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::kernels::cpu
