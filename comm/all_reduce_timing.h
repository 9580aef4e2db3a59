// SPDX-License-Identifier: Apache-2.0
// Times the ways of an all-reduce on the ranks and links of this job. Collective: all ranks make
// the same calls and get the same numbers. Start-up and benches only.
#pragma once

#include <vector>

#include "comm/cuda_communicator.h"
#include "kernels/device/cuda/graph.h"

namespace tandem::comm {

/// The table that makes `communicator` take one way for all sizes.
AllReduceTable only(kernels::PeerAlgorithm algorithm);
/// Whether a message of bf16 fits that way's workspace.
bool fits_workspace(kernels::PeerAlgorithm algorithm, std::int64_t size_bytes);

/// Microseconds of one all-reduce of zeros, `calls` of them back to back in a captured graph
/// (`graph`) or enqueued one by one, for each of `repeats` repeats; the slowest rank's times.
std::vector<double> time_all_reduce(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                    ControlPlane& control, std::int64_t size_bytes, bool graph,
                                    int calls, int repeats);

/// Times every way at 4 KiB .. 8 MiB in graphs; about half a second.
std::vector<AllReduceTiming> time_all_ways(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                           ControlPlane& control);

}  // namespace tandem::comm
