// SPDX-License-Identifier: Apache-2.0
// The watchdog's judgement, apart from its sockets and clocks: given what is known of every rank,
// is the job broken, and which rank is to blame? Plain functions of plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/progress.h"

namespace tandem::comm {

struct Deadlines {
  double alive_s = 5;    ///< A rank whose heartbeat is missing this long is gone.
  double step_s = 15;    ///< Longest stage of a step; 0: not watched.
  double load_s = 1800;  ///< Longest stage without progress while loading; 0: not watched.
};

/// How far a rank's device has come in the collectives that it does on its own, all of them in one
/// order on all ranks. Modulo 2^32; the ranks are compared, so they count alike.
struct DevicePosition {
  std::uint32_t entered = 0;  ///< Its part is on the way to the others.
  std::uint32_t left = 0;     ///< It has those of the others, too.
};

struct RankState {
  std::string host;
  bool left = false;  ///< Said good-bye: nothing is expected of it.
  bool connection_lost = false;
  double silent_s = 0;  ///< Since its last heartbeat.
  StageKind kind = StageKind::kLoad;
  std::string stage;                       ///< As `describe` writes it.
  double stage_age_s = 0;                  ///< Since the stage last changed.
  std::optional<DevicePosition> position;  ///< Of a rank that has waited long for its device.
};

/// The sentence to end the job with, or nothing when all is well. Order: lost connections, silent
/// ranks, ranks stuck in work of their own, ranks whose device is stuck, ranks that wait in a
/// collective nobody works towards. Of devices that wait for each other the one is to blame that
/// did not come to the collective in which others are; if all came to it, the one that has left it.
std::optional<std::string> judge(const std::vector<RankState>& ranks, const Deadlines& deadlines);

}  // namespace tandem::comm
