// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>

#include "kernels/device/error.h"
#include "launch/bench/trace.h"
#include "support/temporary_folder.h"

namespace tandem::launch {
namespace {

std::string write(const testing::TemporaryFolder& folder, const std::string& text) {
  const std::string path = (folder.path() / "data").string();
  std::ofstream(path) << text;
  return path;
}

std::string fault(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was wrong";
}

TEST(Workload, RandomLengthsFillTheirRangeAndSeedsRepeat) {
  WorkloadOptions options;
  options.num_prompts = 4000;
  options.input_len = 10;
  options.output_len = 100;
  options.range_ratio = 0.5;
  const Workload workload = make_workload(options);
  std::set<std::int32_t> inputs, outputs;
  for (const BenchRequest& request : workload.requests) {
    inputs.insert(request.input);
    outputs.insert(request.output);
  }
  EXPECT_EQ(inputs, (std::set<std::int32_t>{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(*outputs.begin(), 50);
  EXPECT_EQ(*outputs.rbegin(), 150);
  const Workload again = make_workload(options);
  for (std::size_t i = 0; i < workload.requests.size(); ++i)
    EXPECT_EQ(workload.requests[i].input, again.requests[i].input);
}

TEST(Workload, PrefixesAreSharedAndTheRestIsNot) {
  WorkloadOptions options;
  options.num_prompts = 2;
  options.input_len = 50;
  options.prefix_len = 700;
  const Workload workload = make_workload(options);
  PromptMaker prompts(1000, 0);
  const auto a = prompts.tokens(workload.requests[0]), b = prompts.tokens(workload.requests[1]);
  ASSERT_EQ(a.size(), 750u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 700, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 700, a.end(), b.begin() + 700));
  EXPECT_TRUE(std::all_of(a.begin(), a.end(), [](int id) { return id >= 0 && id < 1000; }));
  prompts.next_run();
  EXPECT_NE(prompts.tokens(workload.requests[0])[0], a[0]);
}

TEST(Workload, MooncakeBlocksBecomeEqualTokens) {
  const testing::TemporaryFolder folder;
  WorkloadOptions options;
  options.trace =
      "mooncake:" +
      write(
          folder,
          R"({"timestamp": 5000, "input_length": 600, "output_length": 7, "hash_ids": [0, 2]})"
          "\n"
          R"({"timestamp": 2000, "input_length": 1030, "output_length": 3, "hash_ids": [0, 1, 9]})"
          "\n"
          R"({"timestamp": 5500, "input_length": 1030, "output_length": 3, "hash_ids": [0, 2, 8]})"
          "\n");
  Workload workload = make_workload(options);
  choose_prompts(workload, options);
  ASSERT_EQ(workload.requests.size(), 3u);
  EXPECT_EQ(workload.requests[0].at_s, 0.0);
  EXPECT_EQ(workload.requests[1].at_s, 3.0);
  EXPECT_EQ(workload.requests[2].at_s, 3.5);
  EXPECT_EQ(workload.requests[1].output, 7);
  const PromptMaker prompts(5000, 3);
  const auto first = prompts.tokens(workload.requests[0]);
  const auto second = prompts.tokens(workload.requests[1]);
  const auto third = prompts.tokens(workload.requests[2]);
  EXPECT_EQ(first.size(), 1030u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 512, second.begin()));
  EXPECT_NE(first[512], second[512]);
  EXPECT_TRUE(std::equal(second.begin(), second.end(), third.begin()));
}

TEST(Workload, AzureTimesAreSecondsAfterTheFirst) {
  const testing::TemporaryFolder folder;
  WorkloadOptions options;
  options.trace =
      "azure:" +
      write(folder,
            "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.5000000,374,44\r\n"
            "2023-11-17 00:00:01.2500000,396,109\r\n");
  Workload workload = make_workload(options);
  choose_prompts(workload, options);
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(workload.requests[0].input, 374);
  EXPECT_DOUBLE_EQ(workload.requests[1].at_s, 1.75);
  EXPECT_EQ(workload.requests[1].output, 109);
}

TEST(Workload, WrongLinesAreNamed) {
  const testing::TemporaryFolder folder;
  const std::string path = write(folder, "2023-11-16 18:15:46.6,1,2\n2023-11-16 18:15:47,3\n");
  EXPECT_EQ(fault([&] { read_trace("azure:" + path); }),
            path + " line 2: it is not TIMESTAMP,ContextTokens,GeneratedTokens");
  EXPECT_EQ(fault([&] { read_trace("mooncake:" + path); }),
            path +
                " line 1: it is not {\"timestamp\": ms, \"input_length\": tokens, "
                "\"output_length\": tokens, \"hash_ids\": [ids]}");
  EXPECT_EQ(fault([&] { read_texts("custom", path, 9); }),
            path +
                " line 1: it is not {\"prompt\": text} or {\"prompt\": text, "
                "\"output_tokens\": tokens}");
  const std::string list = write(folder, "[{}]");
  EXPECT_NE(fault([&] { read_texts("sharegpt", list, 9); }).find(" conversation 1: it is not {"),
            std::string::npos);
  const std::string huge = write(folder, "2023-11-16 18:15:46.6,1000000000,2\n");
  EXPECT_NE(fault([&] { read_trace("azure:" + huge); }).find("leave out"), std::string::npos);
  EXPECT_NE(fault([&] { read_trace("other:" + path); }).find("azure:FILE"), std::string::npos);
  EXPECT_NE(fault([&] { read_trace("azure:/nowhere"); }).find("cannot read"), std::string::npos);
}

TEST(Workload, SamplingKeepsWholeConversations) {
  const testing::TemporaryFolder folder;
  std::string text;
  for (int turn = 0; turn < 3; ++turn)
    for (int c = 1; c <= 200; ++c)
      text += concat("{\"timestamp\": ", 1000 * turn, ", \"input_length\": ", 600 + turn,
                     ", \"output_length\": 1, \"hash_ids\": [0, ", c, "]}\n");
  WorkloadOptions options;
  options.trace = "mooncake:" + write(folder, text);
  options.trace_sample = 0.25;
  std::map<std::int64_t, int> turns;
  for (const BenchRequest& request : make_workload(options).requests) ++turns[request.blocks[1]];
  EXPECT_GT(turns.size(), 30u);
  EXPECT_LT(turns.size(), 70u);
  for (const auto& [conversation, count] : turns) EXPECT_EQ(count, 3) << conversation;
}

TEST(Workload, TextsOfBothForms) {
  const testing::TemporaryFolder folder;
  const std::string talk =
      R"({"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]})";
  EXPECT_EQ(read_texts("sharegpt", write(folder, "[" + talk + "," + talk + "]"), 9).size(), 2u);
  const auto lines = read_texts("sharegpt", write(folder, talk + "\n"), 9);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].text, "hello");
  EXPECT_EQ(lines[0].output, 9);
  const auto custom =
      read_texts("custom", write(folder, R"({"prompt": "a", "output_tokens": 4})"), 9);
  EXPECT_EQ(custom[0].output, 4);
}

TEST(Workload, WhatDoesNotFitIsLeftOut) {
  Workload workload;
  for (const std::int32_t input : {10, 20, 30}) {
    BenchRequest request;
    request.input = input;
    request.output = 5;
    workload.requests.push_back(request);
  }
  std::int64_t left_out = 0;
  keep_fitting(workload, 25, &left_out);
  EXPECT_EQ(left_out, 1);
  EXPECT_EQ(workload.requests.size(), 2u);
  EXPECT_NE(fault([&] { keep_fitting(workload, 5, &left_out); }), "nothing was wrong");
}

Workload five_prompts() {
  Workload workload;
  workload.label = "five";
  for (int i = 0; i < 5; ++i) {
    BenchRequest request;
    request.number = i;
    request.at_s = 10 + i;
    request.input = 600;
    request.blocks = {i / 2, 100 + i};
    workload.requests.push_back(request);
  }
  return workload;
}

TEST(Workload, PromptsAreChosenInTheMiddleAndTheirHistoryIsKept) {
  Workload workload = five_prompts();
  WorkloadOptions options;
  options.skip_prompts = 3;
  options.num_prompts = 1;
  choose_prompts(workload, options, 2);
  ASSERT_EQ(workload.requests.size(), 1u);
  EXPECT_EQ(workload.requests[0].number, 3);
  EXPECT_EQ(workload.requests[0].at_s, 0);
  ASSERT_EQ(workload.history.size(), 2u);
  EXPECT_EQ(workload.history[0].number, 1);
  EXPECT_EQ(workload.label, "five from3");
  options.skip_prompts = 5;
  Workload all = five_prompts();
  EXPECT_NE(fault([&] { choose_prompts(all, options); }).find("pass over fewer"),
            std::string::npos);
}

TEST(Workload, TokensOfTheHistoryLastOverRuns) {
  Workload workload = five_prompts();
  WorkloadOptions options;
  options.skip_prompts = 3;
  choose_prompts(workload, options, 2);
  PromptMaker prompts(5000, 3);
  prompts.last(workload.history);
  const auto before = prompts.tokens(workload.history[1]);
  const auto next = prompts.tokens(workload.requests[0]);
  prompts.next_run();
  EXPECT_EQ(prompts.tokens(workload.history[1]), before);
  const auto after = prompts.tokens(workload.requests[0]);
  // Request 3 shares its first block with request 2; its second block is its own.
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 512, after.begin()));
  EXPECT_TRUE(std::equal(next.begin(), next.begin() + 512, after.begin()));
  EXPECT_NE(next[512], after[512]);
}

TEST(ArrivalTimes, MeanRateIsExactAndBurstinessShapesTheGaps) {
  const auto variation = [](double burstiness) {
    const auto times = arrival_times(20001, 4, burstiness, 1);
    EXPECT_NEAR(times.back(), 20000 / 4.0, 1e-6);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    double squares = 0;
    for (std::size_t i = 1; i < times.size(); ++i)
      squares += (times[i] - times[i - 1] - 0.25) * (times[i] - times[i - 1] - 0.25);
    return squares / 20000 / (0.25 * 0.25);
  };
  // The squared coefficient of variation of a Gamma distribution is 1 / shape.
  EXPECT_NEAR(variation(1), 1, 0.05);
  EXPECT_NEAR(variation(0.25), 4, 0.4);
  EXPECT_NEAR(variation(10), 0.1, 0.01);
  EXPECT_EQ(arrival_times(3, std::numeric_limits<double>::infinity(), 1, 0),
            (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace tandem::launch
