// SPDX-License-Identifier: Apache-2.0
// What a rank is doing, for the watchdog: published by the step thread with a few relaxed stores
// (no clock, no lock, no allocation), read by the heartbeat thread. One writer, many readers.
// Rank 0 publishes kIdle whenever it waits for requests; followers are idle while they wait for a
// plan (ControlPlane does that).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tandem::comm {

enum class StageKind : int {
  kLoad,        ///< Start-up work: long deadline.
  kStep,        ///< Work of a step.
  kDevice,      ///< Waiting for the device, whose work may wait for other ranks' devices.
  kCollective,  ///< Waiting for other ranks: they are to blame first.
  kIdle,        ///< Nothing to do: no deadline.
};

struct Stage {
  StageKind kind = StageKind::kLoad;
  const char* what = "starting";  ///< A string literal.
  std::int64_t step = -1;         ///< -1: outside of steps.
  int layer = -1;                 ///< -1: outside of layers.
  std::uint64_t sequence = 0;     ///< Grows with every publication.
};

/// For example "step 123, all-reduce, layer 7".
std::string describe(const Stage& stage);

class Progress {
 public:
  /// `what` must live for ever (a string literal). Step and layer stay as they are.
  void enter(StageKind kind, const char* what) noexcept;
  void set_step(std::int64_t step) noexcept;
  void set_layer(int layer) noexcept;
  /// Same stage, but something was done: a file was read, a chunk was mapped.
  void touch() noexcept;

  /// A consistent copy. Any thread.
  Stage read() const noexcept;

 private:
  void begin() noexcept;
  void end() noexcept;

  std::atomic<std::uint64_t> sequence_{0};  ///< Odd while a publication is being written.
  std::atomic<StageKind> kind_{StageKind::kLoad};
  std::atomic<const char*> what_{"starting"};
  std::atomic<std::int64_t> step_{-1};
  std::atomic<int> layer_{-1};
};

/// Enters a stage and goes back to the one before. `progress` may be null.
class StageScope {
 public:
  StageScope(Progress* progress, StageKind kind, const char* what) noexcept : progress_(progress) {
    if (progress_ == nullptr) return;
    before_ = progress_->read();
    progress_->enter(kind, what);
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;
  ~StageScope() {
    if (progress_ != nullptr) progress_->enter(before_.kind, before_.what);
  }

 private:
  Progress* progress_;
  Stage before_;
};

}  // namespace tandem::comm
