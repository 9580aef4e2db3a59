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

}  // namespace tandem
