// SPDX-License-Identifier: Apache-2.0
// `tandem bench latency`: time to first token and time per output token of fixed shapes, beside the
// least time that memory bandwidth and arithmetic allow; `tandem bench shard`: the same for one
// rank's share of the work.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

int run_bench_latency(Ranks& ranks, const std::vector<std::string>& arguments);

/// `tandem bench shard --tensor-parallel-size N`: the same on one rank that runs the first of N
/// shards, communication left out; its tokens mean nothing, its times are a rank's own work.
int run_bench_shard(Ranks& ranks, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
