// SPDX-License-Identifier: Apache-2.0
// `tandem waits`: runs fixed work (or a prompt) with recording on and prints where each rank's time
// went; `tandem waits compare A.json B.json` prints what changed between two reports.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_waits(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
