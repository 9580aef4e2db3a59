// SPDX-License-Identifier: Apache-2.0
// `tandem launch --cluster FILE [--ranks N] [--dry-run] -- COMMAND...`: starts a tandem command on
// a cluster described by a file: makes mpirun's hostfile, builds the mpirun, srun or sbatch line
// and becomes it. Runs before MPI is initialised, in one process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/cluster_config.h"

namespace tandem::launch {

struct LaunchLine {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string hostfile;  ///< Its text; empty: none is needed. `words` name it as kHostfile.
};

/// Stands in `LaunchLine::words` for the path of the hostfile.
inline constexpr const char* kHostfile = "{hostfile}";

/// What starts `command` (its first word is the program) on `ranks` ranks; 0: all of the cluster.
/// `in_allocation`: inside a Slurm job, srun is used; outside, sbatch. ConfigError when the cluster
/// has fewer ranks.
LaunchLine build_launch_line(const ClusterConfig& cluster, int ranks, bool in_allocation,
                             const std::vector<std::string>& command);

/// The line with its hostfile in memory, where a program that this process starts finds it.
LaunchLine with_hostfile(LaunchLine line);

/// As a shell reads it.
std::string quoted(const std::vector<std::string>& words);

/// `program` is this program's path. Returns only for --help, --dry-run and on errors.
int run_launch(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace tandem::launch
