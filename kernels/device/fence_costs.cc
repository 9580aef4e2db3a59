// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/fence_costs.h"

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

float middle_mean(std::vector<float> ends) {
  if (ends.empty()) return 0;
  std::sort(ends.begin(), ends.end());
  const std::ptrdiff_t left_out = ends.size() > 2 ? 1 : 0;
  const auto kept = static_cast<float>(static_cast<std::ptrdiff_t>(ends.size()) - 2 * left_out);
  return std::accumulate(ends.begin() + left_out, ends.end() - left_out, 0.0f) / kept;
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
    spans[i].fence_ns = middle_mean({ends.begin() + static_cast<std::ptrdiff_t>(from),
                                     ends.begin() + static_cast<std::ptrdiff_t>(to)});
  }
}

}  // namespace tandem
