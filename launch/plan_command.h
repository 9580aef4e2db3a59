// SPDX-License-Identifier: Apache-2.0
// `tandem plan`: what a model would need and how fast it would be on a cluster, per number of
// ranks, without loading it; and the check of such predictions against results.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_plan(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
