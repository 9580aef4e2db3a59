// SPDX-License-Identifier: Apache-2.0
// `tandem serve`: an OpenAI-compatible HTTP server on rank 0 over the engine of all ranks.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_serve(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
