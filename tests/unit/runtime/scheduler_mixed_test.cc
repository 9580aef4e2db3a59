// SPDX-License-Identifier: Apache-2.0
// How many prompt tokens a step takes beside decode rows.
#include <gtest/gtest.h>

#include "runtime/scheduler.h"
#include "support/scheduler_driver.h"

namespace tandem::runtime {
namespace {

TEST(MixedSteps, StepsThatDecodeTakeFewPromptTokensAndFewerOfALongContext) {
  EngineLimits limits;
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 128;
  limits.max_model_len = 1024;
  limits.num_chunks = limits.mapped_chunks = 64;
  limits.mixed_step_tokens = 33;
  limits.attention_equal_tokens = 128;
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

}  // namespace
}  // namespace tandem::runtime
