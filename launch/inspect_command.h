// SPDX-License-Identifier: Apache-2.0
// `tandem inspect`: what a model is and what it costs every rank at a tensor-parallel size, without
// loading it: architecture, parameters, slices, bytes, KV bytes per token, imbalance.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_inspect(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
