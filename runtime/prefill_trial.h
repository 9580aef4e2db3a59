// SPDX-License-Identifier: Apache-2.0
// How steps with prefill run while something is measured. Plain values, equal on all ranks.
#pragma once

#include <cstdint>
#include <limits>

namespace tandem::runtime {

/// `overlap_min_tokens` when no step overlaps.
inline constexpr std::int32_t kNeverOverlap = std::numeric_limits<std::int32_t>::max();

/// Leaving out a side keeps the shapes and the order of the rest.
struct PrefillTrial {
  bool compute = true;         ///< Matmuls, attention, norms.
  bool communicate = true;     ///< Sums over ranks.
  bool shared_domain = false;  ///< Sums run in the memory sync domain of the computation.
};

}  // namespace tandem::runtime
