// SPDX-License-Identifier: Apache-2.0
// How many prompt tokens a step takes beside decode rows.
#include <gtest/gtest.h>

#include "runtime/scheduler.h"
#include "support/scheduler_driver.h"

namespace tandem::runtime {
namespace {

EngineLimits mixed_limits() {
  EngineLimits limits;
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 128;
  limits.max_model_len = 1024;
  limits.num_chunks = limits.mapped_chunks = 64;
  limits.mixed_step_tokens = 33;
  limits.attention_equal_tokens = 128;
  return limits;
}

/// Prompt tokens of the steps that also decode, of a prompt of 300 tokens beside one sequence.
std::vector<std::size_t> mixed_sizes(const EngineLimits& limits) {
  Driver driver(limits);
  Request decode = make_request(1, 3, 40);
  decode.params.ignore_eos = true;
  driver.add(decode);
  driver.turn();
  driver.add(make_request(2, 300, 1, 5));
  driver.run();
  driver.expect_single_run(1);
  driver.expect_single_run(2);
  std::vector<std::size_t> sizes;
  for (const BatchPlan& plan : driver.plans)
    if (!plan.decode_slots.empty() && !plan.segments.empty())
      sizes.push_back(plan.segments.front().tokens.size());
  return sizes;
}

TEST(MixedSteps, StepsThatDecodeTakeFewPromptTokensAndFewerOfALongContext) {
  const EngineLimits limits = mixed_limits();
  const std::vector<std::size_t> sizes = mixed_sizes(limits);
  // 32 / (1 + context / 128): at 0, 32 and 57 tokens of context.
  ASSERT_GE(sizes.size(), 4u);
  EXPECT_EQ(std::vector<std::size_t>(sizes.begin(), sizes.begin() + 3),
            (std::vector<std::size_t>{32, 25, 22}));
  // Alone the prompt takes all rows of a step.
  Driver alone(limits);
  alone.add(make_request(2, 300, 1, 5));
  alone.run();
  EXPECT_EQ(alone.plans.front().segments.front().tokens.size(), 128u);
}

/// Attention of 3 rows costs as much as of 12: the steps take 24, then 12, also where fewer would
/// fit; but never more than the 32 that the step has room for.
TEST(MixedSteps, StepsTakeWholeTilesOfAttention) {
  EngineLimits limits = mixed_limits();
  limits.prefill_tile_tokens = 12;
  const std::vector<std::size_t> sizes = mixed_sizes(limits);
  ASSERT_GE(sizes.size(), 20u);
  EXPECT_EQ(std::vector<std::size_t>(sizes.begin(), sizes.begin() + 3),
            (std::vector<std::size_t>{24, 24, 12}));
  for (std::size_t i = 3; i + 1 < sizes.size(); ++i) EXPECT_EQ(sizes[i], 12u) << "step " << i;
  limits.prefill_tile_tokens = 48;
  for (const std::size_t size : mixed_sizes(limits)) EXPECT_LE(size, 32u);
}

}  // namespace
}  // namespace tandem::runtime
