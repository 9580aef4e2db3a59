// SPDX-License-Identifier: Apache-2.0
// `tandem bench overlap`: what communication costs a prefill step, per layer, with and without the
// overlap of two halves. All ways are measured in one run, taking turns: the step as it is, its
// computation alone, its sums over ranks alone; exposed communication is the step minus its
// computation.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_overlap(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
