// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_clock.h"

#include <gtest/gtest.h>

namespace tandem::runtime {
namespace {

/// A clock that only `pass` moves.
struct FakeClock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<FakeClock, duration>;
  static inline time_point current;
  static time_point now() { return current; }
  static void pass(int ms) { current += std::chrono::milliseconds(ms); }
};

TEST(DurationHistogram, QuantilesAreRightToTenPercent) {
  DurationHistogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) histogram.add(1e-5 * i);
  EXPECT_EQ(histogram.count(), 1000);
  EXPECT_NEAR(histogram.sum_s(), 1e-5 * 500500, 1e-9);
  EXPECT_NEAR(histogram.quantile(0.5), 5e-3, 5e-4);
  EXPECT_NEAR(histogram.quantile(0.99), 9.9e-3, 1e-3);
  histogram.add(0);
  histogram.add(1e9);
  EXPECT_LT(histogram.quantile(0), 1.3e-6);
}

/// Two turns; the device needs `device_ms` for the first step, the host `host_ms` for the second.
StepTimes two_turns(int device_ms, int host_ms) {
  BasicStepClock<FakeClock> clock;
  FakeClock::pass(100);
  clock.begin_turn();
  clock.submit([] {});
  clock.end_turn(false);
  clock.begin_turn();
  FakeClock::pass(host_ms);
  clock.submit([] { FakeClock::pass(1); });
  clock.collect([&] { FakeClock::pass(std::max(device_ms - host_ms - 1, 0)); });
  FakeClock::pass(2);
  clock.end_turn(false);
  return clock.times();
}

TEST(StepClock, ADeviceThatStillWorksIsNotIdle) {
  const StepTimes times = two_turns(20, 2);
  EXPECT_EQ(times.late_steps, 0);
  EXPECT_EQ(times.idle.count(), 1);
  EXPECT_EQ(times.idle.sum_s(), 0);
  EXPECT_NEAR(times.wait.sum_s(), 17e-3, 1e-9);
  EXPECT_NEAR(times.submit.sum_s(), 1e-3, 1e-9);
  EXPECT_NEAR(times.host.sum_s(), 4e-3, 1e-9);
}

TEST(StepClock, ALateStepShowsHowLongTheDeviceMayHaveIdled) {
  const StepTimes times = two_turns(3, 10);
  EXPECT_EQ(times.late_steps, 1);
  EXPECT_NEAR(times.idle.sum_s(), 11e-3, 1e-9) << "from the first submission to the second";
}

}  // namespace
}  // namespace tandem::runtime
