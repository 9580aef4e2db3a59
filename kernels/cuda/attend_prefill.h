// SPDX-License-Identifier: Apache-2.0
// Prefill attention at the tensor cores' rate: TMA and wgmma, warp-specialised, on the paged cache.
// Handles the rows [num_decode, num_tokens) of a step, all segments in one launch. Rows of a
// segment have consecutive positions; a segment whose first position is negative is inert.
#pragma once

#include "kernels/attend.h"
#include "kernels/device/cuda/stamp.h"

namespace tandem::kernels {

/// Whether `attend_prefill` can run this: 16-bit elements, head_dim 64 or 128, no softcap, rows
/// aligned to 16 bytes, at most 512 segments. Else the simple kernel does.
template <typename T>
bool attend_prefill_supported(const AttendArgs<T, Cuda>& args);

/// Enqueued on the compute stream; not inside a capture. `waits` (device memory, added to) selects
/// the counting kernel.
template <typename T>
void attend_prefill(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args,
                    TileWaits* waits = nullptr);

}  // namespace tandem::kernels
