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

}  // namespace
}  // namespace tandem::comm
