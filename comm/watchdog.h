// SPDX-License-Identifier: Apache-2.0
// Ends the whole job, with one sentence, when a part of it is broken. A heartbeat thread per rank
// (TCP star around rank 0, no MPI in it) keeps "alive" (heartbeats arrive) and "progress" (the step
// thread enters new stages) apart, each with its deadline. On expiry, on a lost connection and on
// `fail`, the sentence names rank, host, step and stage, and every rank leaves by `_exit`, because
// MPI_Abort can hang. Owns the thread and the sockets; made after ControlPlane, destroyed before
// MPI is finalised. `progress()` is written by the step thread only; `fail` may be called by any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/control_plane.h"
#include "comm/mpi_session.h"
#include "comm/progress.h"
#include "comm/verdict.h"
#include "comm/watched_device.h"

namespace tandem::comm {

/// Exit code of ranks that the watchdog ended.
inline constexpr int kBrokenJobExitCode = 70;

struct WatchdogConfig {
  Deadlines deadlines;
  /// Interfaces to reach rank 0 by ("eth0,ib0"); empty: what Open MPI or NCCL were told, then all.
  std::string interfaces;
};

class Watchdog {
 public:
  /// Collective. ConfigError when a rank cannot reach rank 0. `control` reports its waits to
  /// `progress()` and must outlive the watchdog.
  Watchdog(const MpiSession& session, ControlPlane& control, WatchdogConfig config);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Says good-bye: the others expect nothing of this rank from here on.
  ~Watchdog();

  Progress& progress();

  /// What this rank knew of the ranks less than half a second ago: rank 0 of all, another one of
  /// itself and of rank 0. Any thread.
  std::vector<RankState> ranks() const;

  /// For as long as the answer lives, errors of this rank's device end the job, and the device is
  /// abandoned before this process ends. One device at a time.
  [[nodiscard]] DeviceWatch watch(DeviceHooks hooks);

  /// This rank leaves because of an error that the others probably have too. Those that are still
  /// there some seconds after its good-bye end with `exit_code`.
  void leaving_with(int exit_code);

  /// This rank cannot go on: all ranks end with `exit_code`; rank 0 prints the sentence once.
  [[noreturn]] void fail(const std::string& sentence, int exit_code = kBrokenJobExitCode) noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::comm
