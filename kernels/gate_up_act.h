// SPDX-License-Identifier: Apache-2.0
// The first half of a gated MLP: act(x Wg^T) * (x Wu^T). Gate and up rows are interleaved by 16
// in one weight (16 gate rows, the same 16 up rows, ...), so one block of a kernel holds both.
#pragma once

#include "kernels/add_norm.h"

namespace tandem::kernels {

inline constexpr int kGateUpInterleave = 16;

enum class GateActivation : std::uint8_t { kSilu, kGeluTanh, kGelu };

template <typename T, Device D>
struct GateUpArgs {
  TensorView<const T, D> x;                    ///< [tokens, hidden], normed
  DeferredNorm<T, D>* deferred = nullptr;      ///< The norm of x that may be due yet, or null.
  const LinearWeight<T, D>* weight = nullptr;  ///< [2 * intermediate, hidden], interleaved
  const float* bias = nullptr;                 ///< [2 * intermediate], interleaved, or null
  GateActivation activation = GateActivation::kSilu;
  TensorView<T, D> scratch;  ///< [tokens, 2 * intermediate]
  TensorView<T, D> out;      ///< [tokens, intermediate]
};

/// `intermediate` is a multiple of 16. Enqueued on the compute stream.
template <typename T>
void gate_up_act(Context<Cpu>& ctx, const GateUpArgs<T, Cpu>& args);
template <typename T>
void gate_up_act(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args);

}  // namespace tandem::kernels
