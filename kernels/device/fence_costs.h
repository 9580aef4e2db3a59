// SPDX-License-Identifier: Apache-2.0
// What the end of a kernel costs each op of a GPU's step, from the ends that were seen alone
// between the ops (spans of kStamps). One end says little about the next: beside kernels that write
// much, ends differ by a factor of two. So an op is told the mean of the nearest ones, but for
// those ten times as long as their median: what interrupts the GPU once is no fence. Plain
// function.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/device/recorder.h"

namespace tandem {

inline constexpr std::size_t kFencesAround = 4;  ///< That many before an op and behind it.

/// Sets `fence_ns` of the ops in spans [first, size), which are of one step and in its order; 0
/// where no end was seen.
void tell_fence_costs(std::vector<TimeSpan>& spans, std::size_t first);

}  // namespace tandem
