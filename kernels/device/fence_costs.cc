// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/fence_costs.h"

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

constexpr float kInterruption = 10;  ///< Times the median.

float usual_mean(std::vector<float> ends) {
  if (ends.empty()) return 0;
  std::sort(ends.begin(), ends.end());
  const float limit = kInterruption * ends[ends.size() / 2];
  const auto usual = std::upper_bound(ends.begin(), ends.end(), limit);
  return std::accumulate(ends.begin(), usual, 0.0f) / static_cast<float>(usual - ends.begin());
}

}  // namespace

void tell_fence_costs(std::vector<TimeSpan>& spans, std::size_t first) {
  std::vector<float> ends;
  for (std::size_t i = first; i < spans.size(); ++i)
    if (spans[i].activity == Activity::kStamps)
      ends.push_back(static_cast<float>(spans[i].end_ns - spans[i].begin_ns));
  std::size_t seen = 0;
  for (std::size_t i = first; i < spans.size(); ++i) {
    if (spans[i].activity == Activity::kStamps) {
      ++seen;
      continue;
    }
    const std::size_t from = seen > kFencesAround ? seen - kFencesAround : 0;
    const std::size_t to = std::min(ends.size(), seen + kFencesAround);
    spans[i].fence_ns = usual_mean({ends.begin() + static_cast<std::ptrdiff_t>(from),
                                    ends.begin() + static_cast<std::ptrdiff_t>(to)});
  }
}

}  // namespace tandem
