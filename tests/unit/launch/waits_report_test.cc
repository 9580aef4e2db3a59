// SPDX-License-Identifier: Apache-2.0
// The report of waits from logs written by hand: statistics, worst row first, JSON and back, what
// changed between two, the picture's numbers.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "kernels/device/error.h"
#include "launch/waits/report.h"
#include "launch/waits/session.h"
#include "launch/waits/svg.h"
#include "launch/waits/table.h"

namespace tandem::launch {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TimeSpan span(Activity activity, std::int64_t begin_ms, std::int64_t end_ms, int step) {
  TimeSpan result;
  result.activity = activity;
  result.begin_ns = begin_ms * kMs;
  result.end_ns = end_ms * kMs;
  result.lane = is_op(activity) ? Lane::kCompute : Lane::kHost;
  result.step = step;
  return result;
}

/// Two ranks, a prefill step of 10 ms and three decode steps of 10, 10 and 20 ms; rank 1 computes
/// `late_ms` longer in each decode step, for which rank 0 waits.
WaitsReport report_of(int late_ms) {
  std::vector<runtime::RankLog> logs(2);
  for (int r = 0; r < 2; ++r) {
    runtime::RankLog& log = logs[static_cast<std::size_t>(r)];
    log.rank = r;
    log.host = "node";
    log.device = "cpu (1 thread)";
    log.steps = {{0, 0, 7, 1}, {1, 2, 0, 1}, {2, 2, 0, 1}, {3, 2, 0, 1}};
    std::int64_t at = 0;
    for (const auto& step : log.steps) {
      const std::int64_t end = at + (step.step == 3 ? 20 : 10);
      const bool late = r == 1 && step.step > 0;
      const std::int64_t meet = at + 2 + (late ? late_ms : 0);
      log.spans.push_back(span(Activity::kDown, at, meet, step.step));
      log.spans.push_back(span(Activity::kAllReduce, meet, end, step.step));
      at = end;
    }
  }
  return make_report(logs, runtime::attribute(logs), 0);
}

double row_us(const WaitPhase& phase, std::size_t rank, const std::string& row) {
  for (const WaitLine& line : phase.ranks[rank].rows)
    if (line.row == row) return line.mean_us;
  ADD_FAILURE() << row;
  return -1;
}

TEST(WaitsReport, KeepsDecodeAndPrefillApart) {
  const WaitsReport report = report_of(5);
  ASSERT_EQ(report.phases.size(), 2u);
  const WaitPhase& decode = report.phases[0];
  EXPECT_EQ(decode.kind, "decode");
  EXPECT_EQ(decode.steps, 3);
  EXPECT_DOUBLE_EQ(decode.rows_per_step, 2);
  EXPECT_NEAR(decode.ranks[0].step_mean_us, 40e3 / 3, 1e-6);
  EXPECT_NEAR(decode.ranks[0].step_median_us, 10e3, 1e-6);
  EXPECT_NEAR(row_us(decode, 0, "rank_skew"), 5e3, 1e-6);
  EXPECT_NEAR(row_us(decode, 1, "rank_skew"), 0, 1e-6);
  EXPECT_NEAR(row_us(decode, 1, "compute_above_ceiling"), 7e3, 1e-6);
  EXPECT_EQ(report.phases[1].kind, "prefill");
  EXPECT_DOUBLE_EQ(report.phases[1].rows_per_step, 7);
  EXPECT_NEAR(report.last_share[1], 1, 1e-9);
}

TEST(WaitsReport, TheTableBeginsWithTheWorstRow) {
  const std::string text = waits_table(report_of(5));
  const auto skew = text.find("rank skew: all_reduce"), above = text.find("above the ceiling");
  ASSERT_NE(skew, std::string::npos) << text;
  EXPECT_LT(above, skew) << text;  // 7 of 13.3 ms on rank 1 against 5 on rank 0
  EXPECT_NE(text.find("rank 1 comes last 100 %"), std::string::npos) << text;
}

/// Prompts run without graphs in any case.
TEST(WaitsReport, GraphsAreNoAdviceForPrompts) {
  WaitsReport report = report_of(2);
  report.devices.assign(2, "NVIDIA H200");
  EXPECT_NE(advice(report, "decode", "launch_gaps", "submit").find("--enforce-eager"),
            std::string::npos);
  EXPECT_EQ(advice(report, "prefill", "launch_gaps", "submit").find("--enforce-eager"),
            std::string::npos);
}

TEST(WaitsReport, ComparesAndComesBackFromJson) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / "waits_report_test.json";
  std::ofstream(file) << boost::json::serialize(to_json(report_of(1)));
  const WaitsReport before = read_report(file);
  EXPECT_EQ(to_json(before), to_json(report_of(1)));
  const std::string text = compare_waits(before, report_of(5));
  EXPECT_NE(text.find("rank skew: all_reduce  "), std::string::npos) << text;
  EXPECT_NE(text.find("+4.00 ms"), std::string::npos) << text;
  std::ofstream(file) << "{\"waits\": 2}";
  EXPECT_THROW(read_report(file), ConfigError);
  std::filesystem::remove(file);
  EXPECT_THROW(read_report(file), ConfigError);
}

TEST(WaitsReport, ThePictureHasABarPerRank) {
  const std::string svg = waits_svg(report_of(5));
  EXPECT_NE(svg.find("<title>rank skew: 5 ms, 38 %</title>"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(WaitsReport, NamesItsFiles) {
  EXPECT_EQ(beside("a/b.json", ".svg"), "a/b.svg");
  EXPECT_EQ(beside("a/b", ".trace.json"), "a/b.trace.json");
}

}  // namespace
}  // namespace tandem::launch
