// SPDX-License-Identifier: Apache-2.0
// `tandem bench scaling`: `bench latency` on 1, 2, 4, ... ranks, each a job of its own that this
// process starts with mpirun, or with srun inside a Slurm allocation. Runs before MPI is
// initialised, in one process, and leaves no rank behind when it is told to end.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

/// `program` is this program's path. Returns the exit code.
int start_bench_scaling(const std::string& program, const std::vector<std::string>& arguments);

/// What a rank answers: the command starts its ranks itself.
int run_bench_scaling(Ranks& ranks, const std::vector<std::string>& arguments);

/// This process was started by mpirun or srun.
bool is_rank();

}  // namespace tandem::launch
