// SPDX-License-Identifier: Apache-2.0
// Picks rows of a matrix: what is computed for sampled rows only starts with it.
#pragma once

#include <cstdint>

#include "kernels/device/buffer.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels {

template <typename T, Device D>
struct GatherRowsArgs {
  const std::int32_t* rows = nullptr;  ///< [out.rows] on device D
  TensorView<const T, D> from;         ///< [any, cols]
  TensorView<T, D> out;                ///< [rows, cols], elsewhere in memory
};

/// out[i] = from[rows[i]]. Enqueued on the compute stream.
template <typename T>
void gather_rows(Context<Cpu>& ctx, const GatherRowsArgs<T, Cpu>& args);
template <typename T>
void gather_rows(Context<Cuda>& ctx, const GatherRowsArgs<T, Cuda>& args);

}  // namespace tandem::kernels
