// SPDX-License-Identifier: Apache-2.0
// Reads the first and the last values of every tensor, so that a wrong size is a read that the
// sanitizer sees.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/weights/checkpoint.h"

namespace tandem::testing {

inline void read_values(const runtime::TensorMap& tensors) {
  static const runtime::Checkpoint reader = runtime::Checkpoint::dummy({}, 0);
  std::vector<float> out(64);
  for (const auto& [name, entry] : tensors) {
    if (entry.shape.empty()) continue;
    const bool vector = entry.shape.size() == 1;
    std::int64_t cols = 1;
    for (std::size_t i = vector ? 0 : 1; i < entry.shape.size(); ++i) cols *= entry.shape[i];
    const std::int64_t count = std::min<std::int64_t>(cols, 64);
    reader.read(entry, 0, 1, 0, count, out.data(), count);
    const std::int64_t last = vector ? 0 : entry.shape[0] - 1;
    reader.read(entry, last, 1, cols - count, count, out.data(), count);
  }
}

}  // namespace tandem::testing
