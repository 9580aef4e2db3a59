// SPDX-License-Identifier: Apache-2.0
// Random requests, cancels, shared prefixes and pools that are too small.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "support/scheduler_driver.h"

namespace tandem::runtime {
namespace {

class SchedulerUnderFire : public ::testing::TestWithParam<int> {};

TEST_P(SchedulerUnderFire, EveryAnswerIsTheSingleRunAnswerAndAllChunksComeBack) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  EngineLimits limits;
  limits.max_num_seqs = pick(3, 20);
  limits.max_num_batched_tokens = pick(limits.max_num_seqs, 200);
  limits.max_model_len = 480;
  limits.num_chunks = pick(9, 30);
  limits.mapped_chunks = pick(1, limits.num_chunks);
  limits.growth_chunks = pick(1, 5);
  if (GetParam() % 3 == 0) limits.mapped_chunks = limits.num_chunks, limits.growth_chunks = 0;
  limits.synchronous = GetParam() % 2 == 1;
  Driver driver(limits, GetParam() % 5 != 4);

  std::map<RequestId, int> samples;
  std::set<RequestId> cancelled;
  for (int id = 0; id < 250;) {
    const int arrivals = pick(0, 6);
    for (int i = 0; i < arrivals && id < 250; ++i, ++id) {
      Request request = make_request(id, pick(1, 250), pick(1, 150), pick(0, 5));
      if (pick(0, 3) == 0) request.prompt.back() = pick(10, 900);
      request.params.temperature = static_cast<float>(pick(0, 1));
      request.params.seed = static_cast<std::uint64_t>(id);
      request.params.min_tokens = pick(0, 5);
      request.params.n = pick(0, 9) == 0 ? pick(2, 5) : 1;
      request.params.stop_token_ids = {pick(0, 999), pick(0, 999), pick(0, 999)};
      samples[id] = request.params.n;
      driver.add(request);
    }
    for (int i = pick(0, 30); i > 0; --i) driver.turn();
    if (id > 0 && pick(0, 2) == 0) {
      const RequestId victim = pick(std::max(0, id - 20), id - 1);
      cancelled.insert(victim);
      driver.scheduler().finish(victim);
    }
  }
  driver.run();
  for (const auto& [id, n] : samples) {
    for (int s = 0; s < n && !cancelled.contains(id); ++s) driver.expect_single_run(id, s);
  }
  const SchedulerStats stats = driver.scheduler().stats();
  EXPECT_EQ(stats.used_chunks, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  RecordProperty("preemptions", static_cast<int>(stats.preemptions));
  RecordProperty("prefix_hits_tokens", static_cast<int>(stats.prefix_hits_tokens));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerUnderFire, ::testing::Range(0, 20));

}  // namespace
}  // namespace tandem::runtime
