// SPDX-License-Identifier: Apache-2.0
// `tandem chat`: a conversation in the terminal. Rank 0 owns the terminal, under a launcher too.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_chat(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
