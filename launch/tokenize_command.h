// SPDX-License-Identifier: Apache-2.0
// `tandem tokenize`: token ids of a text, and the text of token ids.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_tokenize(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
