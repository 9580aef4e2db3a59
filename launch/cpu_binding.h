// SPDX-License-Identifier: Apache-2.0
// Which cores a rank runs on. mpirun binds each of two ranks to ONE core by default; a rank widens
// that to its share of what the job may use on the host, or of the cores next to its GPU. Must run
// before OpenMP starts threads, which inherit the binding. Linux; plain functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::launch {

struct CpuInfo {
  int cpu = 0;   ///< As sched_setaffinity counts.
  int core = 0;  ///< Equal for the hardware threads of one core; unique on the host.
  int node = 0;  ///< NUMA node.
};

/// CPUs that are online, by node, core and number. `root` is /sys/devices/system.
std::vector<CpuInfo> read_topology(const std::filesystem::path& root = "/sys/devices/system");

/// "0-3,8" <-> {0,1,2,3,8}
std::vector<int> parse_cpu_list(const std::string& text);
std::string cpu_list_text(const std::vector<int>& cpus);

/// CPUs that process `pid` (0: this one) may run on; empty when the kernel does not say.
std::vector<int> affinity_of(int pid);

/// What the job may use here: the launcher's own CPUs when mpirun or orted started this process
/// (it narrows only its children), else this process's.
std::vector<int> allowed_cpus();

/// The CPUs of local rank `local_rank`. `allowed` [local ranks] is each one's `allowed_cpus`,
/// `nodes` [local ranks] the NUMA node of its GPU or -1. Ranks whose sets differ were bound by the
/// launcher on purpose (srun) and keep them; equal sets are divided by cores. With fewer cores
/// than ranks nobody is pinned: all share all.
std::vector<int> share_of_cpus(const std::vector<CpuInfo>& topology,
                               const std::vector<std::vector<int>>& allowed,
                               const std::vector<int>& nodes, int local_rank);

/// Physical cores under `cpus`: the number of compute threads worth starting.
int count_cores(const std::vector<CpuInfo>& topology, const std::vector<int>& cpus);

/// Binds this process (its later threads inherit it); false when the kernel refuses.
bool bind_to(const std::vector<int>& cpus);

}  // namespace tandem::launch
