// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "launch/bench/scaling_jobs.h"
#include "launch/bench/scaling_results.h"
#include "launch/bench/scaling_waits.h"
#include "launch/launch_command.h"
#include "launch/svg_chart.h"
#include "support/config_error.h"
#include "support/model_shapes.h"

namespace tandem::launch {
namespace {

using testing::config_error;

std::string document_text(int ranks, double tpot, double ttft, const std::string& dtype = "bf16") {
  return concat(
      R"({"bench":"latency-cpu","machine":{"cpu":"X"},"commit":"abc","date":"2026-01-01",)",
      R"("command":"c","work":{"model":"m","dtype":")", dtype, R"(","ranks":)", ranks,
      R"(},"rows":[{"case":"m bf16 tp)", ranks, R"( batch4 ctx128","metric":"tpot_ms","runs":5,)",
      R"("value":)", tpot, R"(,"spread":0.5},{"case":"m bf16 tp)", ranks,
      R"( batch1 prefill100","metric":"ttft_ms","runs":5,"value":)", ttft, R"(,"spread":0}]})");
}

LatencyDocument document(int ranks, double tpot, double ttft, const std::string& dtype = "bf16") {
  return parse_latency_document(concat(ranks, ".json"), document_text(ranks, tpot, ttft, dtype));
}

TEST(Scaling, SpeedUpAndEfficiencyOverTheFewestRanks) {
  const auto cases = scaling_cases({document(4, 5, 50), document(2, 8, 100)});
  ASSERT_EQ(cases.size(), 2u);
  const ScalingCase& decode = cases[0];
  EXPECT_EQ(decode.model, "m bf16");
  EXPECT_EQ(decode.shape, "batch4 ctx128");
  ASSERT_EQ(decode.points.size(), 2u);
  EXPECT_EQ(decode.points[0].ranks, 2);
  EXPECT_DOUBLE_EQ(decode.points[0].tokens_per_s.median, 4 * 1000 / 8.0);
  EXPECT_DOUBLE_EQ(decode.points[1].speed_up.median, 1.6);
  EXPECT_DOUBLE_EQ(decode.points[1].efficiency.median, 0.8);  // 1.6 times on twice the ranks
  // 0.5 of 8 and 0.5 of 5: relative spreads 1/16 and 1/10, added in squares.
  EXPECT_NEAR(decode.points[1].speed_up.spread, 1.6 * std::sqrt(1 / 256.0 + 1 / 100.0), 1e-12);
  EXPECT_DOUBLE_EQ(cases[1].points[1].tokens_per_s.median, 100 * 1000 / 50.0);
  EXPECT_DOUBLE_EQ(cases[1].points[1].efficiency.median, 1.0);
}

TEST(Scaling, RoundsOfOneSizeBecomeTheirMedian) {
  const auto cases = scaling_cases({document(1, 10, 1), document(2, 7, 1), document(2, 5, 1),
                                    document(1, 12, 1), document(1, 30, 1), document(2, 6, 1)});
  EXPECT_DOUBLE_EQ(cases[0].points[0].latency_ms.median, 12);
  EXPECT_DOUBLE_EQ(cases[0].points[0].latency_ms.spread, (30 - 10) / 2.0);
  EXPECT_DOUBLE_EQ(cases[0].points[1].latency_ms.median, 6);
  EXPECT_EQ(cases[0].points[0].runs, 15u);
}

TEST(Scaling, UnequalWorkIsRefused) {
  EXPECT_EQ(config_error([] {
              scaling_cases({document(1, 8, 1), document(2, 8, 1, "f32")});
            }),
            "unequal work is not compared: the dtype is bf16 in 1.json and f32 in 2.json; measure "
            "both with one tandem bench scaling command, with the same options");
  LatencyDocument other = document(2, 8, 1);
  other.json["commit"] = "def";
  EXPECT_NE(config_error([&] {
              scaling_cases({document(1, 8, 1), other});
            }).find("the commit is abc"),
            std::string::npos);
  LatencyDocument shorter = document(2, 8, 1);
  shorter.json["rows"].as_array().pop_back();
  EXPECT_NE(config_error([&] {
              scaling_cases({document(1, 8, 1), shorter});
            }).find("list of cases"),
            std::string::npos);
  EXPECT_NE(config_error([] { scaling_cases({document(1, 8, 1)}); }).find("two numbers of ranks"),
            std::string::npos);
  for (const char* text : {"", "{", "{\"bench\":1}", "[1]", "{\"bench\":\"x\",\"rows\":[]}"})
    EXPECT_NE(config_error([&] { parse_latency_document("f", text); }).find("f holds no results"),
              std::string::npos)
        << text;
}

TEST(Scaling, SizesFollowTheMachineAndTheModel) {
  const runtime::ModelConfig model = testing::smollm2();
  EXPECT_EQ(scaling_sizes({}, 8, model), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(scaling_sizes({}, 6, model), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(scaling_sizes({}, 16, model), (std::vector<int>{1, 2, 4, 8, 9}));
  EXPECT_EQ(scaling_sizes({3, 1, 3}, 8, model), (std::vector<int>{1, 3}));
  EXPECT_THROW(scaling_sizes({1, 10}, 16, model), ConfigError);
  EXPECT_THROW(scaling_sizes({0, 1}, 16, model), ConfigError);
  EXPECT_THROW(scaling_sizes({}, 1, model), ConfigError);
}

TEST(Scaling, JobsStayInsideTheAllocation) {
  Surroundings around;
  around.slurm = true;
  around.hosts = 2;
  around.tasks = 4;
  around.cpus_per_task = 3;
  const ClusterConfig cluster = surrounding_cluster(around, "auto", 1);
  EXPECT_EQ(cluster.world_size(), 4);
  EXPECT_EQ(quoted(build_launch_line(cluster, 2, true, {"tandem"}).words),
            "srun --mpi=pmix --kill-on-bad-exit=1 --nodes=1 --ntasks=2 --ntasks-per-node=2 "
            "--cpus-per-task=3 tandem");
  EXPECT_EQ(threads_per_rank(cluster, around, 4), 3);
  Surroundings laptop;
  laptop.cores = 8;
  const ClusterConfig local = surrounding_cluster(laptop, "auto", 2);
  EXPECT_EQ(local.device, "cpu");
  EXPECT_EQ(local.world_size(), 8);
  EXPECT_EQ(threads_per_rank(local, laptop, 4), 2);
  laptop.gpus = 4;
  EXPECT_EQ(surrounding_cluster(laptop, "auto", 2).world_size(), 4);
  EXPECT_EQ(surrounding_cluster(laptop, "cpu", 16).world_size(), 16);
}

/// What no size spends time in is not drawn: it would lie on the axis, over what does.
TEST(ScalingWaits, RowsWithoutTimeAreNotDrawn) {
  const std::vector<WaitSplit> splits{
      {1, "decode", 100, {{"compute_at_ceiling", 60}, {"rank_skew", 0}, {"idle", 0.2}}},
      {2, "decode", 100, {{"compute_at_ceiling", 30}, {"rank_skew", 20}, {"idle", 0}}}};
  const std::vector<Chart> charts = wait_charts(splits);
  ASSERT_EQ(charts.size(), 1u);
  ASSERT_EQ(charts[0].series.size(), 2u);
  EXPECT_EQ(charts[0].series[0].name, "compute at ceiling");
  EXPECT_EQ(charts[0].series[1].name, "rank skew");
  EXPECT_EQ(charts[0].series[1].points[1].y, 0.2);
}

TEST(SvgChart, TicksAreRoundAndCover) {
  EXPECT_EQ(nice_ticks(0, 10, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(0, 0.93, false),
            (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(nice_ticks(3, 40, true), (std::vector<double>{5, 10, 20}));
  EXPECT_EQ(nice_ticks(0.5, 2000, true), (std::vector<double>{1, 10, 100, 1000}));
}

TEST(SvgChart, TextIsEscaped) {
  const std::string page =
      svg_page("a<b & c", "", {{"t", "x", "y", {{"s", {{1, 1, 0, ""}}, false}}}});
  EXPECT_NE(page.find("a&lt;b &amp; c"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace tandem::launch
