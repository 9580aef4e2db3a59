// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch_plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

BatchPlan full_plan() {
  BatchPlan plan;
  plan.step = 1LL << 40;
  plan.mapped_chunks = 77;
  SlotInit init;
  init.slot = 3;
  init.params.seed = 0xfedcba9876543210ull;
  init.params.temperature = 0.7f;
  init.params.num_stop_ids = 2;
  init.params.stop_ids[1] = 128009;
  init.logit_bias = {{5, -std::numeric_limits<float>::infinity()}, {9, 1.5f}};
  init.allowed = {1, 2, 3};
  init.bad_words = {{4, 5}, {6, 7, 8}};
  init.history = {10, 11};
  plan.inits = {init, SlotInit{}};
  plan.assigns = {{3, 0, 8}, {3, 1, 9}};
  plan.chunk_copies = {{4, 9}};
  plan.decode_slots = {0, 2};
  plan.segments = {{3, 2, {7, 8, 9}, true, 1, {9}}, {1, 0, {4}, false, 0, {6}}};
  plan.sample_mode = SampleMode::kFull;
  plan.process_logits = true;
  plan.logprobs = true;
  plan.max_kv_tokens = 4097;
  return plan;
}

TEST(BatchPlan, CountsRowsAndSamples) {
  const BatchPlan plan = full_plan();
  EXPECT_EQ(plan.num_prefill_tokens(), 4);
  EXPECT_EQ(plan.num_tokens(), 6);
  EXPECT_EQ(plan.num_samples(), 3);
  EXPECT_EQ(plan.num_scores(), 2);
}

TEST(BatchPlan, SerializeAndDeserializeAreInverses) {
  const BatchPlan plan = full_plan();
  const auto bytes = serialize(plan);
  const BatchPlan back = deserialize(bytes);
  EXPECT_EQ(back, plan);
  EXPECT_EQ(serialize(back), bytes);
  BatchPlan stop;
  stop.stop = true;
  EXPECT_EQ(deserialize(serialize(stop)), stop);
}

TEST(BatchPlan, EveryFieldTravels) {
  const auto bytes = serialize(full_plan());
  // Flipping any byte either is refused or gives another plan: no byte is ignored.
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto changed = bytes;
    changed[i] ^= std::byte{1};
    try {
      EXPECT_FALSE(deserialize(changed) == full_plan()) << "byte " << i;
    } catch (const InternalError&) {
    }
  }
}

TEST(BatchPlan, CutOrLengthenedBytesAreRefused) {
  auto bytes = serialize(full_plan());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THROW(deserialize(std::span(bytes).first(n)), InternalError) << n;
  }
  bytes.push_back(std::byte{0});
  EXPECT_THROW(deserialize(bytes), InternalError);
}

TEST(BatchPlan, RandomBytesNeverReadOutside) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(random() % 300);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    try {
      deserialize(bytes);
    } catch (const InternalError&) {
    }
  }
}

}  // namespace
}  // namespace tandem::runtime
