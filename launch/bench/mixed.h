// SPDX-License-Identifier: Apache-2.0
// `tandem bench mixed`: what a long prompt does to answers that are being written, and they to it.
// A decode batch runs; a long prompt arrives; time per output token before and during its prefill,
// and the prompt's time to first token beside the batch and alone.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_mixed(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
