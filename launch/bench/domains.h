// SPDX-License-Identifier: Apache-2.0
// `tandem bench domains`: what memory synchronization domains are worth on this GPU, as a table, as
// results in the common schema, and as a picture.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_domains(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
