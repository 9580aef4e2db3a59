// SPDX-License-Identifier: Apache-2.0
// What kernels write for the report of waits. `enqueue_stamp` reads the GPU's clock (ns,
// %globaltimer) when all work before it is done: asynchronous, on the compute stream, may be
// captured; keeps the PDL rule of `launch.cuh`.
#pragma once

#include <cstdint>

#include "kernels/device/cuda/context.h"

namespace tandem {

struct StampTimes {
  std::uint64_t passed = 0;   ///< All work before is done.
  std::uint64_t started = 0;  ///< The stamp itself was there; with PDL long before, if it could.
};

/// What the consumers of all blocks of an attention kernel did, in SM cycles summed over
/// warpgroups.
struct TileWaits {
  std::uint64_t total = 0;  ///< From first to last work.
  std::uint64_t query = 0;  ///< Waiting for work and its queries.
  std::uint64_t key = 0;
  std::uint64_t value = 0;
};

void enqueue_stamp(Context<Cuda>& ctx, StampTimes* at);

/// The same on every SM, each of which writes a line of `lines` as it ends: so this kernel's own
/// end costs what that of a kernel of an op does. Beside kernels that write much, the end of one
/// that runs on a single SM and writes a single word was seen to be 40 times shorter (H200).
void enqueue_wide_stamp(Context<Cuda>& ctx, StampTimes* at, Span<std::uint32_t, Cuda> lines);
inline std::int64_t wide_stamp_words(const Context<Cuda>& ctx) {
  return std::int64_t{32} * ctx.num_sms();
}

}  // namespace tandem
