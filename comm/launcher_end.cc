// SPDX-License-Identifier: Apache-2.0
#include "comm/launcher_end.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdio>

namespace tandem::comm {

void hurry_launcher(bool kill_when_stuck) noexcept {
  // A signal with a handler ends a sleep, and SIGCHLD is one that a launcher gets all the time; the
  // first comes after the other ranks had the time to leave by themselves. mpirun 4.1 crashes with
  // a stack trace when it is forced to end by a second SIGTERM, so it is killed, and what it would
  // have removed is removed here. The name is compared each time because the process number may
  // have a new owner by then.
  constexpr const char* kScript = R"(
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
      case $(cat /proc/$1/comm 2>/dev/null) in
        mpirun|mpirun.openmpi|mpiexec|orterun|orted|prterun|prted) sleep 0.2; kill -CHLD $1;;
        *) exit 0;;
      esac
    done 2>/dev/null
    [ "$2" = kill ] || exit 0
    kill -KILL $1
    case $OMPI_FILE_LOCATION in
      */ompi.*/*/*/*) rm -rf "${OMPI_FILE_LOCATION%/*/*}"; rmdir "${OMPI_FILE_LOCATION%/*/*/*}";;
    esac)";
  char parent[32];
  std::snprintf(parent, sizeof parent, "%d", static_cast<int>(::getppid()));
  char shell[] = "sh", option[] = "-c", kill[] = "kill", wait[] = "wait";
  char* const arguments[] = {shell,  option, const_cast<char*>(kScript),
                             shell,  parent, kill_when_stuck ? kill : wait,
                             nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&actions) != 0) return;
  if (::posix_spawnattr_init(&attributes) == 0) {
    // No descriptor of ours stays open: mpirun waits for the end of its ranks' output.
    for (int descriptor = 0; descriptor < 3; ++descriptor)
      ::posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    // Its own session: the launcher signals its ranks by group.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t child = 0;
    ::posix_spawn(&child, "/bin/sh", &actions, &attributes, arguments, environ);
    ::posix_spawnattr_destroy(&attributes);
  }
  ::posix_spawn_file_actions_destroy(&actions);
}

}  // namespace tandem::comm
