// SPDX-License-Identifier: Apache-2.0
// `tandem bench serve`: loads any OpenAI-compatible server over HTTP and reports latencies,
// throughput, goodput and, for several request rates, the highest that holds the objectives. One
// process, no ranks, no model.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_serve(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
