// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/scaling_jobs.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/device/device_info.h"
#include "kernels/device/error.h"
#include "parallel/shard.h"
#include "runtime/model_report.h"

namespace tandem::launch {
namespace {

int number_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

int usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Surroundings look_around() {
  Surroundings around;
  around.cores = usable_cores();
  const DeviceReport report = query_devices();
  if (report.built_with_cuda && report.problem.empty())
    around.gpus = static_cast<int>(report.devices.size());
  around.slurm = std::getenv("SLURM_JOB_ID") != nullptr;
  if (!around.slurm) return around;
  around.hosts = std::max(1, number_of("SLURM_JOB_NUM_NODES"));
  around.tasks = number_of("SLURM_NTASKS");
  around.tasks_per_host = number_of("SLURM_NTASKS_PER_NODE");
  around.cpus_per_task = number_of("SLURM_CPUS_PER_TASK");
  return around;
}

ClusterConfig surrounding_cluster(const Surroundings& around, const std::string& device,
                                  int most_ranks) {
  ClusterConfig cluster;
  cluster.name = around.slurm ? "of this Slurm job" : "of this machine";
  cluster.device = device == "auto" ? (around.gpus > 0 ? "cuda" : "cpu") : device;
  cluster.ranks_per_host = cluster.device == "cuda" ? std::max(1, around.gpus) : around.cores;
  if (!around.slurm) {
    if (cluster.device == "cpu")
      cluster.ranks_per_host = std::max(cluster.ranks_per_host, most_ranks);
    return cluster;
  }
  cluster.launcher = Launcher::kSlurm;
  cluster.num_hosts = around.hosts;
  cluster.between_hosts = "ethernet";
  cluster.cpus_per_rank = around.cpus_per_task;
  if (around.tasks > 0)
    cluster.ranks_per_host = (around.tasks + around.hosts - 1) / around.hosts;
  else if (around.tasks_per_host > 0)
    cluster.ranks_per_host = around.tasks_per_host;
  return cluster;
}

std::vector<int> default_sizes(int available, const runtime::ModelConfig& model) {
  const int last =
      std::min(available, parallel::max_tensor_parallel_size(runtime::shard_shape(model)));
  std::vector<int> sizes;
  for (int size = 1; size < last; size *= 2) sizes.push_back(size);
  sizes.push_back(last);
  return sizes;
}

std::vector<int> scaling_sizes(const std::vector<int>& wanted, int available,
                               const runtime::ModelConfig& model) {
  std::vector<int> sizes = wanted.empty() ? default_sizes(available, model) : wanted;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const int size : sizes) {
    TANDEM_REQUIRE(size > 0, "--sizes must be numbers of ranks, not ", size);
    static_cast<void>(runtime::report_model(model, size, model.dtype));  // throws what is wrong
  }
  TANDEM_REQUIRE(sizes.size() > 1, "scaling compares at least two numbers of ranks, but ",
                 wanted.empty() ? concat("this machine or model has room for ", sizes.front())
                                : concat("--sizes names one"),
                 "; give for example --sizes 1 2");
  return sizes;
}

int threads_per_rank(const ClusterConfig& cluster, const Surroundings& around, int most_ranks) {
  if (cluster.device != "cpu") return 0;
  if (cluster.cpus_per_rank > 0) return cluster.cpus_per_rank;
  if (cluster.launcher == Launcher::kSlurm) return 1;  // Slurm's own default
  if (cluster.num_hosts > 1) return 0;
  return std::max(1, around.cores / most_ranks);
}

}  // namespace tandem::launch
