// SPDX-License-Identifier: Apache-2.0
// The `tandem` program: every rank runs this same file.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "comm/launcher_end.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "launch/bench/scaling.h"
#include "launch/command.h"
#include "launch/command_line.h"
#include "launch/launch_command.h"
#include "launch/version.h"

namespace {

using tandem::launch::Command;
using tandem::launch::Ranks;

constexpr int kUsageError = 2;
constexpr int kFault = 1;

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : tandem::launch::commands()) {
    if (name == command.name) return command;
    names.emplace_back(command.name);
  }
  const std::string meant = tandem::launch::nearest(name, names);
  throw tandem::ConfigError(
      tandem::concat("tandem has no command ", name,
                     meant.empty() ? "; see tandem --help"
                                   : tandem::concat("; did you mean tandem ", meant, "?")));
}

int run(Ranks& ranks, const std::vector<std::string>& words) {
  const bool help = words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help";
  if (help || words[0] == "--version") {
    if (ranks.first())
      std::fputs(
          (help ? tandem::launch::help_text() : tandem::launch::version_text() + "\n").c_str(),
          stdout);
    return words.empty() ? kUsageError : 0;
  }
  return find_command(words[0]).run(ranks, {words.begin() + 1, words.end()});
}

void configure_log(const tandem::comm::MpiSession& session, const tandem::launch::JobOptions& job) {
  tandem::LogConfig log;
  log.rank = session.rank();
  log.size = session.size();
  log.host = session.host();
  log.info_rank = job.log_rank;
  log.file = job.log_file;
  tandem::configure_log(log);
  // NCCL writes to stdout by itself, where the answers are.
  ::setenv("NCCL_DEBUG_FILE", job.log_file.empty() ? "/dev/stderr" : "nccl-%h-%p.log", 0);
}

/// All that needs the ranks together. A fault of one rank ends all of them.
int run_job(const tandem::comm::MpiSession& session, std::vector<std::string> words) {
  tandem::comm::ControlPlane control(session);
  try {
    const tandem::launch::JobOptions job = tandem::launch::take_job_options(words);
    control.together([&] {
      configure_log(session, job);
      tandem::launch::require_interface(job.interfaces, session.host());
    });
    tandem::comm::WatchdogConfig config;
    config.deadlines.step_s = job.step_timeout_s;
    config.interfaces = job.interfaces;
    tandem::comm::Watchdog watchdog(session, control, config);
    Ranks ranks{session, control, watchdog, job};
    try {
      return run(ranks, words);
    } catch (const tandem::ConfigError&) {
      watchdog.leaving_with(kUsageError);
      throw;
    } catch (const std::exception& error) {
      watchdog.fail(error.what());
    }
  } catch (const tandem::ConfigError& error) {
    // Thrown on all ranks alike: one of them says it.
    if (session.rank() == 0) std::fprintf(stderr, "tandem: %s\n", error.what());
    return kUsageError;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // `launch` becomes mpirun or sbatch: it is no rank and must not start MPI.
    if (argc > 1 && std::string(argv[1]) == "launch")
      return tandem::launch::run_launch(argv[0], {argv + 2, argv + argc});
    // So does this one, whose ranks are jobs that it starts.
    if (argc > 2 && std::string(argv[1]) == "bench" && std::string(argv[2]) == "scaling" &&
        !tandem::launch::is_rank())
      return tandem::launch::start_bench_scaling(argv[0], {argv + 3, argv + argc});
    int code = 0;
    {
      const tandem::comm::MpiSession session(&argc, &argv);
      code = run_job(session, {argv + 1, argv + argc});
      if (code != 0 && session.size() > 1) tandem::comm::hurry_launcher(false);
    }
    return code;
  } catch (const tandem::ConfigError& error) {
    std::fprintf(stderr, "tandem: %s\n", error.what());
    return kUsageError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem: %s\n", error.what());
  }
  return kFault;
}
