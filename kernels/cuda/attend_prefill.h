// SPDX-License-Identifier: Apache-2.0
// Prefill attention at the tensor cores' rate: TMA and wgmma, warp-specialised, on the paged cache.
// Handles the rows [num_decode, num_tokens) of a step, all segments in one launch. Rows of a
// segment have consecutive positions; a segment whose first position is negative is inert.
#pragma once

#include "kernels/attend.h"

namespace tandem::kernels {

/// What the consumers of all blocks did, in SM cycles summed over warpgroups.
struct PrefillWaits {
  std::uint64_t total = 0;  ///< From first to last work.
  std::uint64_t query = 0;  ///< Waiting for work and its queries.
  std::uint64_t key = 0;
  std::uint64_t value = 0;
};

/// Whether `attend_prefill` can run this: 16-bit elements, head_dim 64 or 128, no softcap, rows
/// aligned to 16 bytes, at most 512 segments. Else the simple kernel does.
template <typename T>
bool attend_prefill_supported(const AttendArgs<T, Cuda>& args);

/// Enqueued on the compute stream; not inside a capture. `waits` (device memory, added to) selects
/// the counting kernel.
template <typename T>
void attend_prefill(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args,
                    PrefillWaits* waits = nullptr);

}  // namespace tandem::kernels
