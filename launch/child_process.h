// SPDX-License-Identifier: Apache-2.0
// One command run as a child in a process group of its own: mpirun or srun, whose ranks must not
// outlive this process. Its standard output is kept, its standard error passes through. A signal
// that would end this process ends the child first. One child at a time, from one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/device/error.h"

namespace tandem::launch {

/// This process was told to end while a child ran; the child is gone. Exit with 128 + `signal`.
class Interrupted : public Error {
 public:
  explicit Interrupted(int number) : Error(concat("ended by signal ", number)), signal(number) {}
  int signal;
};

struct ChildResult {
  int exit_code = 0;  ///< 128 + signal when a signal ended it.
  std::string output;
};

/// Runs `words` (looked up on PATH) with `environment` added to this process's, and waits. SIGINT,
/// SIGTERM and SIGHUP that arrive meanwhile are passed on as SIGTERM; ten seconds later, or at a
/// second signal, the group is killed; then Interrupted is thrown. The child is told to end when
/// this process dies otherwise. ConfigError when it cannot be started.
ChildResult run_child(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace tandem::launch
