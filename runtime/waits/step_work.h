// SPDX-License-Identifier: Apache-2.0
// The KV lengths of each step's rows, from the plans alone: every rank sees all plans, so it knows
// what attention has to read without asking the device. A sequence that ended on the device keeps
// its row until the plan drops it, one step later, and is counted there. Step thread.
#pragma once

#include <map>

#include "kernels/device/recorder.h"
#include "runtime/batch_plan.h"

namespace tandem::runtime {

class StepWorkCounter {
 public:
  /// Plans in the order of the steps, none left out.
  StepWork count(const BatchPlan& plan);

 private:
  std::map<std::int32_t, std::int32_t> lengths_;  ///< Tokens in the cache, by slot.
};

}  // namespace tandem::runtime
