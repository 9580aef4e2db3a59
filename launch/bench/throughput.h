// SPDX-License-Identifier: Apache-2.0
// `tandem bench throughput`: tokens per second of the engine without a server, of a whole set of
// requests or of a steady state.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_throughput(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
