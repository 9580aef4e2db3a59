// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/load_report.h"

#include <gtest/gtest.h>

#include "kernels/device/error.h"
#include "launch/bench/results.h"
#include "launch/bench/serve_report.h"
#include "launch/bench/sse.h"
#include "launch/bench/stream_answer.h"

namespace tandem::launch {
namespace {

/// Due and sent at `due` and `sent`, one token at each of `times`.
RequestRecord record(double due, double sent, std::vector<double> times) {
  RequestRecord result;
  result.scheduled_s = due;
  result.sent_s = sent;
  for (const double time : times) result.pieces.push_back({time, 1});
  result.end_s = times.back();
  result.prompt_tokens = 10;
  result.output_tokens = static_cast<std::int64_t>(times.size());
  return result;
}

TEST(Sse, EventsComeOutWhereverTheBytesAreCut) {
  const std::string bytes =
      "data: a\n\n: note\r\ndata:b\r\ndata: c\r\n\r\nid: 1\ndata: [DONE]\n\ndata: cut";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    SseReader reader;
    std::vector<std::string> events;
    for (std::size_t i = 0; i < bytes.size(); i += step)
      reader.push(std::string_view(bytes).substr(i, step),
                  [&](const std::string& data) { events.push_back(data); });
    EXPECT_EQ(events, (std::vector<std::string>{"a", "b\nc", "[DONE]"})) << step;
  }
}

TEST(StreamAnswer, CountsTextIdsAndUsage) {
  RequestRecord got;
  StreamAnswer answer(got);
  answer.take(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}]})", 1);
  answer.take(R"({"choices": [{"delta": {"content": "x"}}]})", 2);
  answer.take(R"({"choices": [{"text": "", "token_ids": [4, 5]}]})", 3);
  answer.take(R"({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}})", 4);
  answer.take("[DONE]", 5);
  answer.finish();
  EXPECT_EQ(got.error, "");
  ASSERT_EQ(got.pieces.size(), 2u);
  EXPECT_EQ(got.pieces[1].at_s, 3);
  EXPECT_EQ(got.pieces[1].tokens, 2);
  EXPECT_EQ(got.prompt_tokens, 7);
  EXPECT_EQ(got.output_tokens, 4);
}

TEST(StreamAnswer, FaultsAreErrors) {
  const auto error = [](const std::vector<std::string>& events) {
    RequestRecord got;
    StreamAnswer answer(got);
    for (const std::string& event : events) answer.take(event, 1);
    answer.finish();
    return got.error;
  };
  const std::string text = R"({"choices": [{"text": "a"}]})";
  EXPECT_EQ(error({text}), "the answer broke off");
  EXPECT_EQ(error({"[DONE]"}), "an answer without a token");
  EXPECT_EQ(error({text, R"({"error": {"message": "no"}})", "[DONE]"}), "HTTP 200: no");
  EXPECT_NE(error({"{", "[DONE]"}), "");
  EXPECT_NE(error({R"({"choices": [3]})", "[DONE]"}), "");
  EXPECT_EQ(error_text(502, "bad gateway"), "HTTP 502: bad gateway");
}

TEST(LoadReport, LatenciesAreVllms) {
  // TTFT 0.5 and 1.0; TPOT (2.5 - 1.5) / 2 and 0 tokens after the first.
  const LoadReport report = summarise({record(1, 1, {1.5, 1.7, 2.5}), record(1, 3, {4})}, {});
  EXPECT_EQ(report.completed, 2);
  EXPECT_EQ(report.ttft_ms, (std::vector<double>{500, 1000}));
  ASSERT_EQ(report.tpot_ms.size(), 1u);
  EXPECT_NEAR(report.tpot_ms[0], 500, 1e-9);
  ASSERT_EQ(report.itl_ms.size(), 2u);
  EXPECT_NEAR(report.itl_ms[0], 200, 1e-9);
  EXPECT_EQ(report.queue_ms, (std::vector<double>{0, 2000}));
  EXPECT_EQ(report.due_ttft_ms, (std::vector<double>{500, 3000}));
  EXPECT_EQ(report.seconds, 3);
  EXPECT_EQ(report.output_tokens, 4);
  EXPECT_NEAR(report.mean_running, 2.5 / 3, 1e-9);
  EXPECT_EQ(report.peak_running, 1);
}

TEST(LoadReport, AClientThatHoldsRequestsBackDoesNotHoldItsObjectives) {
  const Objectives objectives = parse_objectives({"ttft:1500", "tpot:400"});
  const LoadReport report = summarise({record(1, 1, {1.5, 1.9}), record(1, 3, {4})}, objectives);
  EXPECT_EQ(report.good, 1);
  EXPECT_FALSE(holds(report, objectives));
  EXPECT_TRUE(holds(report, parse_objectives({"ttft:3000"})));
  EXPECT_FALSE(holds(summarise({}, {}), {}));
}

TEST(LoadReport, FailuresAreCountedByTheirText) {
  RequestRecord failed = record(0, 0, {1});
  failed.error = "HTTP 429: busy";
  const LoadReport report = summarise({failed, failed, record(0, 0, {1})}, {});
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.errors.at("HTTP 429: busy"), 2);
  EXPECT_FALSE(holds(report, {}));
}

TEST(Misses, WhatIsUnderWayMissesWhenItsTimeIsOver) {
  const Objectives objectives = parse_objectives({"ttft:1000", "tpot:100"});
  RequestRecord waiting;  // Due at 2.0, without a token.
  waiting.scheduled_s = 2;
  RequestRecord failed = record(0, 0, {9});
  failed.error = "HTTP 429: busy";
  const std::vector<RequestRecord> records{record(0, 0, {0.5, 1.5}), record(0, 0, {1.5, 1.55}),
                                           waiting, failed};
  const Misses early = count_misses(records, 2.9, objectives),
               late = count_misses(records, 3.1, objectives);
  EXPECT_EQ(early.ttft, 1);
  EXPECT_EQ(late.ttft, 2);
  EXPECT_EQ(late.tpot, 1);
  EXPECT_EQ(late.e2el, 0);
}

TEST(Misses, ARunIsHopelessExactlyWhenItsP99IsOver) {
  for (const std::size_t requests : {1, 2, 50, 100, 101, 102, 201, 1000}) {
    std::size_t over = 0;
    // All that missed are just above the limit, all others just at it: no p99 comes nearer.
    const auto p99 = [&] {
      std::vector<double> sorted(requests, 1.0);
      std::fill(sorted.end() - static_cast<std::ptrdiff_t>(over), sorted.end(), 1e6);
      return quantile(sorted, 0.99);
    };
    while (!hopeless({static_cast<std::int64_t>(over), 0, 0}, requests)) ++over;
    EXPECT_GT(p99(), 1e6 - 1) << requests;
    // One fewer, and the p99 lies between a value that holds and one that does not.
    over -= 1;
    EXPECT_LT(p99(), 1e6) << requests;
  }
  EXPECT_FALSE(hopeless({9, 9, 9}, 0));
}

TEST(LoadReport, ARunThatWasCutShortHoldsNothingAndShowsNoLatencies) {
  RequestRecord left;
  left.abandoned = true;
  const Objectives objectives = parse_objectives({"ttft:9000"});
  const LoadReport report = summarise({record(1, 1, {1.5, 1.9}), left}, objectives);
  EXPECT_EQ(report.completed, 1);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.abandoned, 1);
  EXPECT_FALSE(holds(report, objectives));
  ServeContext context;
  context.objectives = objectives;
  context.misses.ttft = 2;
  EXPECT_NE(describe(report, context).find("1 requests unfinished"), std::string::npos);
  EXPECT_NE(describe(report, context).find("TTFT > 9000 ms of 2"), std::string::npos);
  BenchResults results("serve", "");
  add_rows(report, context, results);
  EXPECT_EQ(boost::json::serialize(results.json()).find("ttft_ms"), std::string::npos);
}

TEST(Deadlines, EarlinessIsSlackAndLatenessMissesWhatPassed) {
  // Due at 1.0, 1.1, 1.2: all met thanks to the early first token.
  const Deadlines early = count_deadlines(record(0, 0, {0.5, 1.05, 1.15}), 1, 0.1);
  EXPECT_EQ(early.met, 3);
  EXPECT_EQ(early.missed, 0);
  // Due at 1.0; the second, due at 1.1, comes at 1.35 and misses those of 1.1, 1.2 and 1.3. The
  // third is due 0.1 after it.
  const Deadlines late = count_deadlines(record(0, 0, {1.0, 1.35, 1.44}), 1, 0.1);
  EXPECT_EQ(late.met, 2);
  EXPECT_EQ(late.missed, 3);
}

TEST(Objectives, WrongOnesAreRefused) {
  for (const char* word : {"ttft", "ttft:", "ttft:x", "ttft:-1", "other:5", "tpot:5ms"})
    EXPECT_THROW(parse_objectives({word}), ConfigError) << word;
}

TEST(BaseUrl, HostPortAndPrefix) {
  const ServerAddress plain = parse_base_url("http://127.0.0.1:8000");
  EXPECT_EQ(plain.host + " " + plain.port + " " + plain.prefix, "127.0.0.1 8000 ");
  const ServerAddress proxied = parse_base_url("http://[::1]:80/llm/");
  EXPECT_EQ(proxied.host + " " + proxied.port + " " + proxied.prefix, "::1 80 /llm");
  EXPECT_EQ(parse_base_url("host").port, "80");
  for (const char* url : {"https://a:1", "http://", "http://a:b", ""})
    EXPECT_THROW(parse_base_url(url), ConfigError) << url;
}

TEST(Quantile, LiesBetweenNeighbours) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({1, 2, 4}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({0, 10}, 0.99), 9.9);
}

}  // namespace
}  // namespace tandem::launch
