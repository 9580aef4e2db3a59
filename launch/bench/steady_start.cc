// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/steady_start.h"

#include <algorithm>
#include <cmath>

#include "runtime/scheduler.h"

namespace tandem::launch {

std::vector<std::int32_t> steady_start(std::span<const BenchRequest> first,
                                       std::int32_t step_tokens, std::int32_t mixed_step_tokens) {
  const std::size_t size = first.size();
  std::vector<std::int32_t> left(size);
  double steps = 0;  ///< From the first token of request i to that of the last one.
  for (std::size_t i = size; i-- > 0;) {
    const BenchRequest& request = first[i];
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(size);
    left[i] = std::clamp(static_cast<std::int32_t>(std::lround(share * request.output + steps)), 1,
                         request.output);
    // Its prompt is computed beside the i tokens that those before it get in each step.
    const auto decoding = static_cast<std::int32_t>(i);
    std::int32_t rows = step_tokens - decoding;
    if (mixed_step_tokens > 0 && decoding > 0)
      rows = std::min(rows, runtime::mixed_prompt_tokens(mixed_step_tokens, decoding));
    steps += static_cast<double>(request.input + request.output - left[i]) / std::max(rows, 1);
  }
  return left;
}

}  // namespace tandem::launch
