// SPDX-License-Identifier: Apache-2.0
#include "runtime/waits/step_work.h"

namespace tandem::runtime {

StepWork StepWorkCounter::count(const BatchPlan& plan) {
  StepWork work;
  for (const SlotInit& init : plan.inits)
    lengths_[init.slot] = static_cast<std::int32_t>(init.history.size());
  for (const std::int32_t slot : plan.decode_slots) work.decode_lengths.push_back(++lengths_[slot]);
  for (const PrefillSegment& segment : plan.segments) {
    const auto tokens = static_cast<std::int32_t>(segment.tokens.size());
    work.segments.push_back({segment.begin, tokens});
    lengths_[segment.slot] = segment.begin + tokens;
  }
  return work;
}

}  // namespace tandem::runtime
