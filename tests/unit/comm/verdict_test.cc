// SPDX-License-Identifier: Apache-2.0
#include "comm/verdict.h"

#include <gtest/gtest.h>

namespace tandem::comm {
namespace {

RankState state(const char* host, StageKind kind, const char* stage, double age_s = 0) {
  RankState rank;
  rank.host = host;
  rank.kind = kind;
  rank.stage = stage;
  rank.stage_age_s = age_s;
  return rank;
}

std::vector<RankState> three() {
  return {state("a", StageKind::kCollective, "step 7, all-reduce, layer 2"),
          state("a", StageKind::kStep, "step 7, mlp, layer 2"),
          state("b", StageKind::kCollective, "step 7, all-reduce, layer 2")};
}

TEST(Verdict, HealthyJobGoesOn) { EXPECT_FALSE(judge(three(), {})); }

TEST(Verdict, LostConnectionNamesRankHostStepAndTheOthersCollective) {
  auto ranks = three();
  ranks[1].connection_lost = true;
  EXPECT_EQ(judge(ranks, {}),
            "rank 1 (host a) ended unexpectedly, last seen in step 7, mlp, layer 2; ranks 0, 2 in "
            "step 7, all-reduce, layer 2");
}

TEST(Verdict, ARankThatSaidGoodByeIsNotMissed) {
  auto ranks = three();
  ranks[1].left = true;
  ranks[1].connection_lost = true;
  ranks[1].silent_s = 1000;
  ranks[1].stage_age_s = 1000;
  EXPECT_FALSE(judge(ranks, {}));
}

TEST(Verdict, SilentHostIsNamedAfterTheAliveDeadline) {
  auto ranks = three();
  ranks.push_back(ranks[2]);
  ranks[2].silent_s = ranks[3].silent_s = 4.9;
  EXPECT_FALSE(judge(ranks, {}));
  ranks[2].silent_s = ranks[3].silent_s = 5.25;
  EXPECT_EQ(judge(ranks, {}),
            "ranks 2, 3 (host b) silent for 5.2 s (stopped, or its host or network is gone), last "
            "seen in step 7, all-reduce, layer 2; rank 0 in step 7, all-reduce, layer 2; rank 1 in "
            "step 7, mlp, layer 2");
}

TEST(Verdict, TheRankThatWorksIsToBlameNotThoseThatWaitForIt) {
  auto ranks = three();
  for (auto& rank : ranks) rank.stage_age_s = 15.5;
  const auto verdict = judge(ranks, {});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->find("rank 1 (host a) made no progress for 15.5 s in step 7, mlp"), 0u)
      << *verdict;
  ranks[1].stage_age_s = 3;  // still within its time: the others may wait for it
  EXPECT_FALSE(judge(ranks, {}));
}

TEST(Verdict, CollectiveThatNobodyWorksTowards) {
  auto ranks = three();
  ranks[0] = state("a", StageKind::kIdle, "waiting for requests", 400);
  ranks[1] = state("a", StageKind::kIdle, "broadcast of a plan", 400);
  EXPECT_FALSE(judge(ranks, {}));
  ranks[2].stage_age_s = 20;
  const auto verdict = judge(ranks, {});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->find("rank 2 (host b) waited 20.0 s in step 7, all-reduce, layer 2"), 0u)
      << *verdict;
}

TEST(Verdict, IdleNeverExpiresLoadingLate) {
  std::vector<RankState> ranks{state("a", StageKind::kIdle, "waiting for requests", 1e6),
                               state("a", StageKind::kLoad, "loading", 100)};
  EXPECT_FALSE(judge(ranks, {}));
  ranks[1].stage_age_s = 1801;
  EXPECT_TRUE(judge(ranks, {}));
  EXPECT_FALSE(judge(ranks, {.alive_s = 5, .step_s = 15, .load_s = 0}));
}

/// Four ranks that wait for their devices in the same step, for about as long.
std::vector<RankState> devices(std::vector<std::optional<DevicePosition>> positions) {
  std::vector<RankState> ranks;
  for (const auto& position : positions) {
    ranks.push_back(state(ranks.size() < 2 ? "a" : "b", StageKind::kDevice,
                          "step 7, waiting for tokens",
                          15.4 - 0.1 * static_cast<double>(ranks.size())));
    ranks.back().position = position;
  }
  return ranks;
}

TEST(Verdict, TheDeviceThatDidNotComeToTheCollectiveIsToBlame) {
  const std::string stuck = " made no progress for 15.";
  const std::string why =
      " in step 7, waiting for tokens: its device did not come to the collective "
      "that others are in; ";
  for (const std::uint32_t begin : {0u, 0xffffffffu}) {  // they count modulo 2^32
    const DevicePosition in{begin + 1, begin}, before{begin, begin};
    EXPECT_EQ(judge(devices({before, in}), {}),
              "rank 0 (host a)" + stuck + "4 s" + why + "rank 1 in step 7, waiting for tokens");
    EXPECT_EQ(judge(devices({in, before}), {}),
              "rank 1 (host a)" + stuck + "3 s" + why + "rank 0 in step 7, waiting for tokens");
    EXPECT_EQ(
        judge(devices({in, in, before, in}), {}),
        "rank 2 (host b)" + stuck + "2 s" + why + "ranks 0, 1, 3 in step 7, waiting for tokens");
    // One that cannot be asked does not hide another that can.
    EXPECT_EQ(judge(devices({std::nullopt, before, in}), {}),
              "rank 1 (host a)" + stuck + "3 s" + why + "ranks 0, 2 in step 7, waiting for tokens");
    // Some are further behind: they come first.
    EXPECT_EQ(judge(devices({DevicePosition{begin + 2, begin + 1}, before, in}), {}),
              "rank 1 (host a)" + stuck + "3 s" + why + "ranks 0, 2 in step 7, waiting for tokens");
  }
}

TEST(Verdict, WhereAllDevicesCameTheOneThatWorksAloneIsToBlame) {
  const auto verdict = judge(devices({DevicePosition{8, 7}, DevicePosition{8, 8}}), {});
  EXPECT_EQ(
      verdict,
      "rank 1 (host a) made no progress for 15.3 s in step 7, waiting for tokens: its device is "
      "in work of its own; rank 0 in step 7, waiting for tokens");
  EXPECT_EQ(judge(devices({DevicePosition{8, 8}, DevicePosition{8, 8}}), {}),
            "ranks 0, 1 (host a) made no progress for 15.4 s in step 7, waiting for tokens");
  EXPECT_EQ(judge(devices({DevicePosition{8, 7}, DevicePosition{8, 7}}), {}),
            "ranks 0, 1 (host a) made no progress for 15.4 s in step 7, waiting for tokens: the "
            "devices are all in the same collective");
}

TEST(Verdict, ARankThatGaveItsDeviceNothingIsToBlame) {
  auto ranks = devices({DevicePosition{8, 7}, std::nullopt, DevicePosition{8, 7}});
  ranks[1] = state("a", StageKind::kIdle, "step 8, broadcast of a plan", 15);
  EXPECT_EQ(judge(ranks, {}),
            "rank 1 (host a) is in step 8, broadcast of a plan and did not come to the collective "
            "that devices have waited in for 15.4 s; ranks 0, 2 in step 7, waiting for tokens");
  // It may still be on its way.
  ranks[1] = state("a", StageKind::kStep, "step 7, scheduling", 10);
  EXPECT_FALSE(judge(ranks, {}));
  ranks[1].stage_age_s = 16;
  const auto verdict = judge(ranks, {});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->find("rank 1 (host a) made no progress for 16.0 s in step 7, scheduling"), 0u)
      << *verdict;
}

TEST(Verdict, DevicesThatDoNotTellAreNamedTogether) {
  auto ranks = devices({std::nullopt, std::nullopt});
  EXPECT_EQ(judge(ranks, {}),
            "ranks 0, 1 (host a) made no progress for 15.4 s in step 7, waiting for tokens");
  ranks[0].stage_age_s = 3;  // went on
  const auto verdict = judge(ranks, {});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->find("rank 1 (host a) made no progress for 15.3 s"), 0u) << *verdict;
  EXPECT_FALSE(judge(ranks, {.alive_s = 5, .step_s = 20, .load_s = 0}));
}

}  // namespace
}  // namespace tandem::comm
