// SPDX-License-Identifier: Apache-2.0
// Where the jobs of `bench scaling` run and on how many ranks: a cluster file, the Slurm allocation
// around this process, or this machine. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster_config.h"
#include "runtime/model_config.h"

namespace tandem::launch {

/// What the environment says about this machine or allocation.
struct Surroundings {
  bool slurm = false;
  int hosts = 1, tasks = 0, tasks_per_host = 0, cpus_per_task = 0;  ///< Slurm's; 0: not said.
  int cores = 1, gpus = 0;                                          ///< Of this host.
};
Surroundings look_around();

/// A cluster without a file. `device`: auto, cpu or cuda; with CPU ranks on one host there are at
/// least `most_ranks` of them, more than cores if need be.
ClusterConfig surrounding_cluster(const Surroundings& around, const std::string& device,
                                  int most_ranks);

/// 1, 2, 4, ... and all of `available`, as far as the model can be dealt.
std::vector<int> default_sizes(int available, const runtime::ModelConfig& model);

/// `wanted`, or the default sizes. Ascending, each once. ConfigError for a size that the model
/// cannot be dealt to, and for one size only.
std::vector<int> scaling_sizes(const std::vector<int>& wanted, int available,
                               const runtime::ModelConfig& model);

/// Threads that every CPU rank gets at every size, so that a rank is always the same device; 0:
/// leave it to the rank.
int threads_per_rank(const ClusterConfig& cluster, const Surroundings& around, int most_ranks);

}  // namespace tandem::launch
