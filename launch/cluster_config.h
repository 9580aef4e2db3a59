// SPDX-License-Identifier: Apache-2.0
// One file of cluster_configs/: the hosts, their devices and links, the launcher and its
// environment. The format is INI (`[section]`, `key = value`, `#` comments); unknown sections and
// keys, missing ones and wrong values are ConfigErrors that name file, line and key. Plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tandem::launch {

enum class Launcher { kLocal, kMpirun, kSlurm };

struct ClusterConfig {
  std::string name, description;
  Launcher launcher = Launcher::kLocal;

  // [hosts]
  std::vector<std::string> hosts;  ///< Empty with Slurm: it chooses.
  int num_hosts = 1;
  int ranks_per_host = 1;  ///< Devices of a host: GPUs, or CPU ranks.

  // [device]
  std::string device = "cpu";  ///< cpu or cuda
  std::string model;           ///< "NVIDIA H200 141GB"
  double memory_gib = 0;       ///< Per rank.
  double memory_gbyte_per_s = 0;
  double bf16_tflops = 0;
  double op_latency_us = 1;  ///< From the end of one op of a step to the start of the next.

  // [links]; GB/s of one direction, per rank.
  std::string within_host = "shared-memory";  ///< shared-memory, nvlink, pcie
  double within_host_gbyte_per_s = 0;
  double within_host_latency_us = 5;   ///< Of an all-reduce of a few bytes.
  std::string between_hosts = "none";  ///< none, ethernet, infiniband
  double between_hosts_gbyte_per_s = 0;
  double between_hosts_latency_us = 30;

  // [network]
  std::string interface;  ///< TCP interface between hosts; "": let MPI choose.

  // [slurm]
  std::string partition, account, time_limit;
  int cpus_per_rank = 0;
  std::vector<std::string> slurm_options;  ///< Further options of srun and sbatch.

  std::vector<std::pair<std::string, std::string>> environment;

  int world_size() const { return num_hosts * ranks_per_host; }
};

/// Throws ConfigError with "FILE:LINE: [section] key: what is wrong; what to write".
ClusterConfig read_cluster_config(const std::filesystem::path& path);
ClusterConfig parse_cluster_config(const std::string& text, const std::string& file_name);

/// "node[0-3,7],gpu1" -> node0 node1 node2 node3 node7 gpu1; zero padding is kept. Throws
/// ConfigError.
std::vector<std::string> expand_hosts(const std::string& text);

}  // namespace tandem::launch
