// SPDX-License-Identifier: Apache-2.0
// A random word as a draw from the standard Gumbel distribution.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"

namespace tandem::kernels::cpu {

/// -log(-log(1 - u)); log1p keeps the upper tail precise, which is where the winner comes from.
inline float gumbel(std::uint32_t word) {
  const float u = std::min(unit_interval(word), 0.99999994f);
  return -std::log(-std::log1p(-u));
}

}  // namespace tandem::kernels::cpu
