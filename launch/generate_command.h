// SPDX-License-Identifier: Apache-2.0
// `tandem generate`: answers prompts and streams the text.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_generate(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
