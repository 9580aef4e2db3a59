// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/device/error.h"
#include "launch/launch_command.h"

namespace tandem::launch {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// Ranks per host that give `ranks` in all; hosts are filled evenly.
struct Spread {
  int hosts, per_host;
};

Spread spread(const ClusterConfig& cluster, int ranks) {
  if (ranks == 0) return {cluster.num_hosts, cluster.ranks_per_host};
  TANDEM_REQUIRE(ranks > 0 && ranks <= cluster.world_size(), "--ranks ", ranks, ": cluster ",
                 cluster.name, " has ", cluster.num_hosts, " hosts with ", cluster.ranks_per_host,
                 " ranks each; use --ranks 1 to ", cluster.world_size());
  const int hosts = (ranks + cluster.ranks_per_host - 1) / cluster.ranks_per_host;
  TANDEM_REQUIRE(ranks % hosts == 0, "--ranks ", ranks, " does not divide evenly over ", hosts,
                 " hosts; use --ranks ", ranks / hosts * hosts);
  return {hosts, ranks / hosts};
}

/// MPI carries host bytes only, so plain shared memory and TCP are right on every fabric.
std::vector<std::pair<std::string, std::string>> mpi_environment(const ClusterConfig& cluster) {
  std::vector<std::pair<std::string, std::string>> variables{{"OMPI_MCA_pml", "ob1"},
                                                             {"OMPI_MCA_btl", "self,vader,tcp"}};
  if (!cluster.interface.empty()) {
    variables.emplace_back("OMPI_MCA_btl_tcp_if_include", cluster.interface);
    variables.emplace_back("OMPI_MCA_oob_tcp_if_include", cluster.interface);
    if (cluster.device == "cuda") variables.emplace_back("NCCL_SOCKET_IFNAME", cluster.interface);
  }
  return variables;
}

Words mpirun_words(const ClusterConfig& cluster, const Spread& spread, const LaunchLine& line) {
  Words words{"mpirun", "-n", std::to_string(spread.hosts * spread.per_host)};
  if (cluster.launcher == Launcher::kMpirun)
    append(words, {"--hostfile", kHostfile, "--map-by", concat("ppr:", spread.per_host, ":node")});
  else
    words.push_back("--oversubscribe");
  // Ranks bind themselves; mpirun would give each one core.
  append(words, {"--bind-to", "none"});
  for (const auto& [name, value] : line.environment)
    if (name.rfind("OMPI_MCA_", 0) != 0) append(words, {"-x", name});  // those are exported anyway
  return words;
}

Words slurm_options(const ClusterConfig& cluster, const Spread& spread) {
  // All three: inside a larger allocation srun would take the missing one from its environment.
  Words words{concat("--nodes=", spread.hosts), concat("--ntasks=", spread.hosts * spread.per_host),
              concat("--ntasks-per-node=", spread.per_host)};
  if (cluster.device == "cuda") words.push_back(concat("--gpus-per-node=", spread.per_host));
  if (cluster.cpus_per_rank > 0) words.push_back(concat("--cpus-per-task=", cluster.cpus_per_rank));
  if (!cluster.hosts.empty()) {
    std::string list;
    for (int h = 0; h < spread.hosts; ++h)
      list += (h == 0 ? "" : ",") + cluster.hosts[static_cast<std::size_t>(h)];
    words.push_back("--nodelist=" + list);
  }
  return words;
}

Words sbatch_options(const ClusterConfig& cluster, const Words& srun) {
  Words words{"--job-name=tandem", "--output=tandem-%j.out"};
  if (!cluster.partition.empty()) words.push_back("--partition=" + cluster.partition);
  if (!cluster.account.empty()) words.push_back("--account=" + cluster.account);
  if (!cluster.time_limit.empty()) words.push_back("--time=" + cluster.time_limit);
  append(words, cluster.slurm_options);
  words.push_back("--wrap=" + quoted(srun));
  return words;
}

}  // namespace

LaunchLine build_launch_line(const ClusterConfig& cluster, int ranks, bool in_allocation,
                             const Words& command) {
  const Spread where = spread(cluster, ranks);
  LaunchLine line;
  line.environment = mpi_environment(cluster);
  line.environment.insert(line.environment.end(), cluster.environment.begin(),
                          cluster.environment.end());
  if (cluster.launcher != Launcher::kSlurm) {
    if (cluster.launcher == Launcher::kMpirun)
      for (int h = 0; h < where.hosts; ++h)
        line.hostfile +=
            concat(cluster.hosts[static_cast<std::size_t>(h)], " slots=", where.per_host, "\n");
    line.words = mpirun_words(cluster, where, line);
    append(line.words, command);
    return line;
  }
  Words srun{"srun", "--mpi=pmix", "--kill-on-bad-exit=1"};
  append(srun, slurm_options(cluster, where));
  append(srun, command);
  if (in_allocation) {
    line.words = srun;
    return line;
  }
  line.words = {"sbatch"};
  append(line.words, slurm_options(cluster, where));
  append(line.words, sbatch_options(cluster, srun));
  return line;
}

std::string quoted(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-+=./:,@%") == std::string::npos;
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
    text += '\'';
  }
  return text;
}

}  // namespace tandem::launch
