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
/// Whether a message of bf16, or a seam of that size, fits that way's workspace.
bool fits_workspace(kernels::PeerAlgorithm algorithm, std::int64_t size_bytes, bool seam = false);

/// Microseconds of one all-reduce of zeros, `calls` of them back to back in a captured graph
/// (`graph`) or enqueued one by one, for each of `repeats` repeats; the slowest rank's times.
std::vector<double> time_all_reduce(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                    ControlPlane& control, std::int64_t size_bytes, bool graph,
                                    int calls, int repeats);

/// The same of `reduce_add_norm` of `[rows, kSeamHidden]` of bf16 in a graph: one seam of a decode
/// step.
inline constexpr std::int64_t kSeamHidden = 4096;
std::vector<double> time_seam(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                              ControlPlane& control, std::int64_t rows, int calls, int repeats);

/// Times every way of a bare sum or of a seam at 4 or 8 KiB .. 8 MiB in graphs; about a third of a
/// second.
std::vector<AllReduceTiming> time_all_ways(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                           ControlPlane& control, bool seam);

}  // namespace tandem::comm
