// SPDX-License-Identifier: Apache-2.0
// How a rank waits for MPI without burning a core: it polls for a moment (yielding the core each
// time, because hosts are often crowded), so that a busy job pays no wake-up latency, then naps for
// a sixteenth of the time it has waited, up to a limit. Called from the step thread only.
#pragma once

#include <mpi.h>

#include <chrono>

namespace tandem::comm {

struct WaitPolicy {
  std::chrono::microseconds spin;     ///< Poll this long first.
  std::chrono::microseconds max_nap;  ///< Longest nap after that.
  int polls_per_nap;                  ///< Large messages need many, idle ranks one.
};

/// Plans come one per step: a follower that heard nothing for a while is idle.
inline constexpr WaitPolicy kControlWait{std::chrono::microseconds(200),
                                         std::chrono::microseconds(6000), 1};
/// Inside a step the others are only skewed: naps stay short and start late.
inline constexpr WaitPolicy kDataWait{std::chrono::microseconds(2000),
                                      std::chrono::microseconds(20), 16};

/// Returns when `request` is complete. Throws MpiError.
void wait_for(MPI_Request& request, const WaitPolicy& policy);

}  // namespace tandem::comm
