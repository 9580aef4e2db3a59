// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/fence_costs.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

/// Spans of the activities given, one behind the other; an end of a kernel takes what is given for
/// it, an op 1000 ns.
class FenceCosts : public ::testing::Test {
 protected:
  void op() { add(Activity::kDown, 1000); }
  void end(std::int64_t ns) { add(Activity::kStamps, ns); }
  void add(Activity activity, std::int64_t ns) {
    TimeSpan span;
    span.activity = activity;
    span.begin_ns = now_;
    span.end_ns = now_ += ns;
    spans_.push_back(span);
  }
  std::vector<float> told(std::size_t first = 0) {
    tell_fence_costs(spans_, first);
    std::vector<float> costs;
    for (const TimeSpan& span : spans_)
      if (span.activity == Activity::kDown) costs.push_back(span.fence_ns);
    return costs;
  }
  std::vector<TimeSpan> spans_;
  std::int64_t now_ = 50;
};

TEST_F(FenceCosts, NoneSeenIsNoneTold) {
  op();
  op();
  EXPECT_EQ(told(), (std::vector<float>{0, 0}));
}

TEST_F(FenceCosts, FewAreAveragedOnBothSides) {
  op();
  end(100);
  op();
  end(300);
  op();
  EXPECT_EQ(told(), (std::vector<float>{200, 200, 200}));
}

TEST_F(FenceCosts, OneInterruptionIsLeftOut) {
  op();
  for (const std::int64_t ns : {600, 2'000'000, 500, 700}) end(ns);
  op();
  EXPECT_EQ(told(), (std::vector<float>{600, 600}));
}

/// Of ends that are long now and then, all count.
TEST_F(FenceCosts, LongEndsAreNoInterruptions) {
  op();
  for (const std::int64_t ns : {28'000, 54'000, 24'000, 54'000}) end(ns);
  EXPECT_EQ(told(), (std::vector<float>{40'000}));
}

/// A step that is quiet at its beginning and not at its end.
TEST_F(FenceCosts, OnlyTheNearestCount) {
  for (int i = 0; i < 20; ++i) {
    op();
    end(i < 10 ? 100 : 900);
  }
  const std::vector<float> costs = told();
  EXPECT_EQ(costs[0], 100);
  EXPECT_EQ(costs[6], 100);
  EXPECT_EQ(costs[10], 500);  // Four of either kind.
  EXPECT_EQ(costs[14], 900);
  EXPECT_EQ(costs[19], 900);
}

TEST_F(FenceCosts, StepsBeforeAreLeftAlone) {
  op();
  end(100);
  const std::size_t first = spans_.size();
  op();
  end(500);
  EXPECT_EQ(told(first), (std::vector<float>{0, 500}));
}

}  // namespace
}  // namespace tandem
