// SPDX-License-Identifier: Apache-2.0
// The watchdog's way to the device of its rank: asks for errors that the device keeps to itself and
// how far it has come, and lets go of kernels that wait for ranks which will never come. Plain
// functions, so that the watchdog knows nothing of devices. `set` and `clear` belong to the step
// thread, the rest to the heartbeat thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "comm/verdict.h"

namespace tandem::comm {

struct DeviceHooks {
  /// Empty, or what went wrong in work that was enqueued earlier. Asked with every heartbeat; must
  /// not block.
  std::function<std::string()> error;
  /// The process ends: kernels that spin return, results are not used any more. Called at most
  /// once; when it blocks the process ends without it.
  std::function<void()> abandon;
  /// Where the device is, if it can tell. Asked when a step takes long, on a thread of its own; may
  /// block, also for ever, and throw.
  std::function<std::optional<DevicePosition>()> position = {};
};

class WatchedDevice {
 public:
  void set(DeviceHooks hooks);
  /// When this returns no hook runs any more, nor will.
  void clear();

  std::string error();
  /// What the device has last told, and lets it be asked anew. Does not block.
  std::optional<DevicePosition> position();
  /// Forgets what it has told.
  void forget_position();
  /// Returns within half a second. After it `clear` does not return: what the hooks use must live
  /// until the process has ended.
  void abandon() noexcept;

 private:
  /// Lives as long as a thread that asks.
  struct Question {
    std::mutex asking;  ///< Held while `hook` runs.
    std::function<std::optional<DevicePosition>()> hook;
    std::mutex mutex;  ///< Guards what follows.
    bool asked = false;
    std::optional<DevicePosition> answer;
  };

  static void ask(const std::shared_ptr<Question>& question);

  std::timed_mutex mutex_;  ///< Held while another hook runs.
  DeviceHooks hooks_;
  std::shared_ptr<Question> question_ = std::make_shared<Question>();
};

/// Keeps hooks set for as long as it lives: made after what they use, destroyed before.
class DeviceWatch {
 public:
  DeviceWatch() = default;
  DeviceWatch(WatchedDevice& device, DeviceHooks hooks) : device_(&device) {
    device.set(std::move(hooks));
  }
  DeviceWatch(DeviceWatch&& other) noexcept : device_(std::exchange(other.device_, nullptr)) {}
  DeviceWatch& operator=(DeviceWatch&& other) noexcept {
    std::swap(device_, other.device_);
    return *this;
  }
  ~DeviceWatch() {
    if (device_ != nullptr) device_->clear();
  }

 private:
  WatchedDevice* device_ = nullptr;
};

}  // namespace tandem::comm
