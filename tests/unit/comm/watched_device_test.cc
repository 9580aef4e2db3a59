// SPDX-License-Identifier: Apache-2.0
#include "comm/watched_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
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

TEST(WatchedDevice, TellsItsPositionWithoutBlocking) {
  WatchedDevice device;
  EXPECT_FALSE(device.position());
  std::atomic<int> asked{0};
  std::promise<void> go;
  const auto wait = go.get_future().share();
  device.set({{}, {}, [&, wait]() -> std::optional<DevicePosition> {
                wait.wait();
                if (++asked == 3) throw std::runtime_error("the device is in ruins");
                return DevicePosition{static_cast<std::uint32_t>(10 * asked), 5};
              }});
  EXPECT_FALSE(device.position());
  EXPECT_FALSE(device.position());  // the first question is still open
  go.set_value();
  const auto told = [&](std::uint32_t entered) {
    const auto end = Clock::now() + std::chrono::seconds(30);
    while (Clock::now() < end) {
      const auto position = device.position();
      if (entered == 0 ? !position : position && position->entered == entered) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  };
  EXPECT_TRUE(told(10));
  EXPECT_TRUE(told(20));
  EXPECT_TRUE(told(0)) << "an error is no position";
  EXPECT_TRUE(told(40));
  device.clear();
  const int at_the_end = asked;
  device.forget_position();
  EXPECT_FALSE(device.position());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(asked, at_the_end) << "asked after the watch has ended";
}

}  // namespace
}  // namespace tandem::comm
