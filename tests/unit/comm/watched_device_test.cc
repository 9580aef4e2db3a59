// SPDX-License-Identifier: Apache-2.0
#include "comm/watched_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;

TEST(WatchedDevice, AsksForErrorsWhileTheWatchLives) {
  WatchedDevice device;
  std::string problem;
  EXPECT_EQ(device.error(), "");
  {
    DeviceWatch watch;
    watch = DeviceWatch(device, {[&] { return problem; }, {}});
    EXPECT_EQ(device.error(), "");
    problem = "NCCL: remote process exited";
    EXPECT_EQ(device.error(), problem);
  }
  EXPECT_EQ(device.error(), "") << "the device is gone";
}

TEST(WatchedDevice, AbandonsOnceAndKeepsTheDeviceUntilTheEnd) {
  // Shared with a thread that waits for ever, as the step thread of a broken job does.
  const auto device = std::make_shared<WatchedDevice>();
  const auto abandoned = std::make_shared<std::atomic<int>>(0);
  const auto cleared = std::make_shared<std::atomic<bool>>(false);
  device->set({{}, [abandoned] { ++*abandoned; }});
  device->abandon();
  EXPECT_EQ(*abandoned, 1);
  device->abandon();
  EXPECT_EQ(*abandoned, 1);
  std::thread([device, cleared] {
    device->clear();
    *cleared = true;
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(*cleared);
}

TEST(WatchedDevice, AHookThatBlocksDoesNotKeepTheProcess) {
  const auto device = std::make_shared<WatchedDevice>();
  const auto for_ever = [] { std::this_thread::sleep_for(std::chrono::hours(1)); };
  const auto start = Clock::now();
  device->set({{}, for_ever});
  device->abandon();
  device->abandon();  // a second try finds the first
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace tandem::comm
