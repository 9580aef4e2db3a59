// SPDX-License-Identifier: Apache-2.0
// Built where oneDNN is not found.
#include "kernels/cpu/onednn.h"

namespace tandem::kernels::cpu {

template <typename T>
struct OneDnnMatmul<T>::State {};

template <typename T>
template <typename Out>
bool OneDnnMatmul<T>::multiply(TensorView<const T, Cpu>, const T*, TensorView<Out, Cpu>) {
  return false;
}

#include "kernels/cpu/onednn_instances.inl"

}  // namespace tandem::kernels::cpu
