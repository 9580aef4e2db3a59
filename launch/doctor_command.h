// SPDX-License-Identifier: Apache-2.0
// `tandem doctor`: started like any other command (mpirun, srun), looks at every rank's host, lets
// the ranks work together under a deadline, and says in green, yellow and red what would go wrong
// and what to do. Exit code 0, or 1 when something is red.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_doctor(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
