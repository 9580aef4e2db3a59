// SPDX-License-Identifier: Apache-2.0
// What this rank tells of itself with its heartbeats: its stage, for how long it has been in it,
// and, when that is long and the device's work, how far the device has come. Heartbeat thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/progress.h"
#include "comm/verdict.h"
#include "comm/watched_device.h"

namespace tandem::comm {

class OwnStage {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void update(const Progress& progress, TimePoint now, RankState& own);
  /// Asks the device only when a step takes long: that costs it something. Does not block.
  void update_position(WatchedDevice& device, RankState& own) const;
  /// The stage counts from `now` on: this process was stopped.
  void begin_anew(TimePoint now) { since_ = now; }

 private:
  std::uint64_t sequence_ = 0;
  TimePoint since_ = std::chrono::steady_clock::now();
};

}  // namespace tandem::comm
