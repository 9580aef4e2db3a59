// SPDX-License-Identifier: Apache-2.0
// Times of this rank's monotonic clock as times of rank 0's. Compared by ping-pong over MPI at two
// moments, because clocks of different hosts drift: between and around them the difference is
// taken as linear (Cristian 1989, "Probabilistic clock synchronization": the shortest round trip
// bounds the error by its half). Plain value; measuring is collective.
#pragma once

#include <cstdint>

#include "comm/control_plane.h"

namespace tandem::comm {

/// One comparison: rank 0's clock minus this rank's, and the largest error of that.
struct ClockOffset {
  std::int64_t local_ns = 0;  ///< This rank's clock when it was measured.
  std::int64_t offset_ns = 0, uncertainty_ns = 0;
};

/// Collective. Zero on rank 0.
ClockOffset measure_clock_offset(ControlPlane& control);

/// `local_ns` of this rank on rank 0's clock.
std::int64_t to_rank0_clock(std::int64_t local_ns, const ClockOffset& first,
                            const ClockOffset& last);

}  // namespace tandem::comm
