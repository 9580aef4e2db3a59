// SPDX-License-Identifier: Apache-2.0
// `tandem bench latency`: time to first token and time per output token of fixed shapes, beside the
// least time that memory bandwidth and arithmetic allow.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_latency(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
