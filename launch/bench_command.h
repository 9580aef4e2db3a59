// SPDX-License-Identifier: Apache-2.0
// `tandem bench KIND`: measurements that print a table and JSON.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
