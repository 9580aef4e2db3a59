// SPDX-License-Identifier: Apache-2.0
#include "parallel/overlap.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/device/cpu/context.h"

namespace tandem::parallel {
namespace {

std::string order(int stages) {
  Context<Cpu> ctx(1);
  OverlapSchedule<Cpu> schedule;
  std::string calls;
  const auto call = [&](char kind) {
    return [&calls, kind](int stage, int half) {
      if (!calls.empty()) calls += ' ';
      calls += kind;
      calls += std::to_string(stage);
      calls += half == 0 ? 'a' : 'b';
    };
  };
  schedule.run(ctx, stages, call('c'), call('r'), call('f'));
  return calls;
}

// While the sum of one half is under way the other half computes: between r0a and f0a stands c0b,
// between r0b and f0b stands c1a, and so on.
TEST(OverlapSchedule, HalvesTakeTurns) {
  EXPECT_EQ(order(1), "c0a r0a c0b r0b f0a f0b");
  EXPECT_EQ(order(3), "c0a r0a c0b r0b f0a c1a r1a f0b c1b r1b f1a c2a r2a f1b c2b r2b f2a f2b");
}

}  // namespace
}  // namespace tandem::parallel
