// SPDX-License-Identifier: Apache-2.0
// What a sub-command is: a name, one line of help, and a function that every rank runs.
#pragma once

#include <string>
#include <vector>

#include "comm/control_plane.h"
#include "comm/mpi_session.h"
#include "comm/watchdog.h"
#include "launch/job_options.h"

namespace tandem::launch {

/// This process among the ranks of the job.
struct Ranks {
  const comm::MpiSession& session;
  comm::ControlPlane& control;
  comm::Watchdog& watchdog;
  const JobOptions& job;
  bool first() const { return control.rank() == 0; }
};

struct Command {
  const char* name;
  const char* summary;
  /// Returns the exit code, equal on all ranks. Throws ConfigError on all ranks or on none.
  int (*run)(Ranks& ranks, const std::vector<std::string>& arguments);
};

/// In the order of `tandem --help`.
const std::vector<Command>& commands();

/// The text of `tandem --help`.
std::string help_text();

/// The command line that repeats a run: "mpirun -n 2 tandem COMMAND ARGUMENTS".
std::string command_text(const Ranks& ranks, const std::string& command,
                         const std::vector<std::string>& arguments);

}  // namespace tandem::launch
