// SPDX-License-Identifier: Apache-2.0
#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/device/error.h"
#include "support/scheduler_driver.h"

namespace tandem::runtime {
namespace {

EngineLimits small_limits() {
  EngineLimits limits;
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 128;
  limits.max_model_len = 1024;
  limits.num_chunks = 64;
  limits.mapped_chunks = 64;
  return limits;
}

TEST(Scheduler, OneRequestGivesTheSingleRunAnswer) {
  for (const bool synchronous : {false, true}) {
    auto limits = small_limits();
    limits.synchronous = synchronous;
    Driver driver(limits);
    driver.add(make_request(1, 70, 200));
    driver.run();
    driver.expect_single_run(1);
    EXPECT_EQ(driver.scheduler().stats().used_chunks, 0);
  }
}

TEST(Scheduler, LongPromptsAreCutAndDecodesGoOn) {
  Driver driver(small_limits());
  Request decode = make_request(1, 3, 12);
  decode.params.ignore_eos = true;
  driver.add(decode);
  driver.turn();
  driver.add(make_request(2, 500, 1, 5));
  driver.run();
  driver.expect_single_run(1);
  driver.expect_single_run(2);
  int mixed = 0;
  for (const BatchPlan& plan : driver.plans) {
    EXPECT_LE(plan.num_tokens(), 128);
    mixed += !plan.decode_slots.empty() && !plan.segments.empty() ? 1 : 0;
  }
  EXPECT_EQ(mixed, 4) << "500 tokens beside one decode row, 127 at a time";
}

TEST(Scheduler, NothingIsPlannedBeyondTheKnownEnd) {
  Driver driver(small_limits());
  Request request = make_request(1, 4, 5);
  request.params.ignore_eos = true;
  driver.add(request);
  driver.run();
  EXPECT_EQ(driver.engine().num_steps(), 5);
  EXPECT_EQ(driver.engine().num_rows(), 4 + 4);
}

TEST(Scheduler, TheContextEndsAnAnswer) {
  auto limits = small_limits();
  limits.max_model_len = 100;
  Driver driver(limits);
  Request request = make_request(1, 90, 1000);
  request.params.ignore_eos = true;
  driver.add(request);
  driver.run();
  EXPECT_EQ(driver.answers[std::make_pair(RequestId{1}, 0)].size(), 10u);
  driver.expect_single_run(1);
}

TEST(Scheduler, AStopIdEndsAndTheOverrunRowIsNeverReported) {
  Driver driver(small_limits());
  Request request = make_request(1, 20, 500);
  const auto free_run = FakeEngine::single_run(request, {}, 0, 1024, kVocab);
  request.params.stop_token_ids = {free_run[9]};
  driver.add(request);
  driver.run();
  driver.expect_single_run(1);
  const auto& answer = driver.answers[std::make_pair(RequestId{1}, 0)];
  EXPECT_EQ(answer.back(), free_run[9]);
  EXPECT_LE(answer.size(), 10u);
  EXPECT_EQ(driver.engine().num_steps(), static_cast<std::int64_t>(answer.size()) + 1)
      << "one step too many is planned, and only one";
}

TEST(Scheduler, MinTokensAndIgnoreEosReachTheDevice) {
  Driver driver(small_limits());
  Request request = make_request(1, 20, 50);
  const auto free_run = FakeEngine::single_run(request, {}, 0, 1024, kVocab);
  request.params.stop_token_ids = {free_run[0]};
  request.params.min_tokens = 6;
  driver.add(request);
  driver.run();
  driver.expect_single_run(1);
  EXPECT_GT(driver.answers[std::make_pair(RequestId{1}, 0)].size(), 5u);
  EXPECT_TRUE(driver.plans[0].process_logits);
  EXPECT_FALSE(driver.plans.back().process_logits);
}

TEST(Scheduler, FirstComeFirstServed) {
  Driver driver(small_limits());
  for (int i = 0; i < 40; ++i) driver.add(make_request(i, 50 + i * 7 % 90, 20, i));
  driver.run();
  EXPECT_TRUE(std::is_sorted(driver.first_tokens.begin(), driver.first_tokens.end()));
  for (int i = 0; i < 40; ++i) driver.expect_single_run(i);
}

TEST(Scheduler, AKnownPrefixIsNotComputedAgain) {
  Driver driver(small_limits());
  driver.add(make_request(1, 5 * kC, 1));
  driver.run();
  const auto rows = driver.engine().num_rows();
  driver.add(make_request(2, 5 * kC, 1));
  driver.run();
  EXPECT_EQ(driver.engine().num_rows() - rows, kC) << "the last token is always computed";
  driver.expect_single_run(2);
  EXPECT_EQ(driver.scheduler().stats().prefix_hits_tokens, 4 * kC);
  EXPECT_EQ(driver.scheduler().stats().prefix_queries_tokens, 10 * kC);
}

TEST(Scheduler, TheNextTurnOfAChatReusesPromptAndAnswer) {
  Driver driver(small_limits());
  Request first = make_request(1, 100, 100);
  first.params.ignore_eos = true;
  driver.add(first);
  driver.run();
  Request second = first;
  second.id = 2;
  const auto& answer = driver.answers[std::make_pair(RequestId{1}, 0)];
  second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
  second.prompt.push_back(3);
  driver.add(second);
  driver.run();
  driver.expect_single_run(2);
  EXPECT_EQ(driver.scheduler().stats().prefix_hits_tokens, 3 * kC);
}

TEST(Scheduler, WithoutPrefixCachingNothingIsKept) {
  Driver driver(small_limits(), false);
  driver.add(make_request(1, 300, 3));
  driver.run();
  driver.add(make_request(2, 300, 3));
  driver.run();
  driver.expect_single_run(2);
  EXPECT_EQ(driver.scheduler().stats().prefix_hits_tokens, 0);
  EXPECT_EQ(driver.scheduler().stats().cached_chunks, 0);
}

TEST(Scheduler, SamplesForkTheirPromptAndDiffer) {
  for (const int prompt : {1, 40, kC, kC + 1, 3 * kC - 5, 200}) {
    for (const bool caching : {true, false}) {
      Driver driver(small_limits(), caching);
      Request request = make_request(1, prompt, 30, prompt);
      request.params.n = 12;
      request.params.temperature = 1.0f;
      request.params.seed = 99;
      request.params.ignore_eos = true;
      driver.add(request);
      driver.run();
      for (int i = 0; i < 12; ++i) driver.expect_single_run(1, i);
      EXPECT_NE(driver.answers[std::make_pair(RequestId{1}, 0)],
                driver.answers[std::make_pair(RequestId{1}, 1)]);
      const std::int64_t decodes = 12 * 29;
      EXPECT_LE(driver.engine().num_rows(), prompt + decodes + 11 * (1 + kC));
      if (prompt <= 128) {
        EXPECT_LE(driver.engine().num_rows(), prompt + decodes + 7 + 4 * kC)
            << "seven forks while the first sample runs; the rest find full chunks at most";
      }
    }
  }
}

TEST(Scheduler, PreemptionLosesAndChangesNothing) {
  auto limits = small_limits();
  limits.num_chunks = limits.mapped_chunks = 14;
  Driver driver(limits);
  for (int i = 0; i < 12; ++i) {
    Request request = make_request(i, 60, 300, i);
    request.params.ignore_eos = true;
    request.params.temperature = static_cast<float>(i % 2);
    request.params.seed = static_cast<std::uint64_t>(i);
    driver.add(request);
  }
  driver.run();
  EXPECT_GT(driver.scheduler().stats().preemptions, 0);
  for (int i = 0; i < 12; ++i) driver.expect_single_run(i);
  EXPECT_EQ(driver.scheduler().stats().used_chunks, 0);
  EXPECT_TRUE(std::is_sorted(driver.first_tokens.begin(), driver.first_tokens.end()));
}

TEST(Scheduler, TheCacheGrowsAheadOfNeed) {
  auto limits = small_limits();
  limits.mapped_chunks = 2;
  limits.growth_chunks = 4;
  Driver driver(limits);
  Request request = make_request(1, 10, 600);
  request.params.ignore_eos = true;
  driver.add(request);
  driver.run();
  driver.expect_single_run(1);
  std::int32_t before = limits.mapped_chunks;
  int grown = 0;
  for (const BatchPlan& plan : driver.plans) {
    for (const ChunkAssign& assign : plan.assigns) {
      EXPECT_LT(assign.chunk, before) << "mapped by an earlier plan";
    }
    grown += plan.mapped_chunks > before ? 1 : 0;
    before = plan.mapped_chunks;
  }
  EXPECT_GE(grown, 3);
  EXPECT_LE(before, 16) << "no more than is needed";
}

TEST(Scheduler, CancelFreesEverything) {
  Driver driver(small_limits());
  Request long_one = make_request(1, 400, 500);
  long_one.params.n = 3;
  driver.add(long_one);
  for (int i = 2; i < 30; ++i) driver.add(make_request(i, 100, 100, i));
  for (int i = 0; i < 6; ++i) driver.turn();
  driver.scheduler().finish(1, 1);
  driver.turn();
  driver.scheduler().finish(1);
  driver.scheduler().finish(12345);
  const auto produced = driver.answers[std::make_pair(RequestId{1}, 0)].size();
  for (int i = 2; i < 30; i += 2) driver.scheduler().finish(i);
  driver.run();
  EXPECT_EQ(driver.answers[std::make_pair(RequestId{1}, 0)].size(), produced);
  for (int i = 3; i < 30; i += 2) driver.expect_single_run(i);
  EXPECT_EQ(driver.scheduler().stats().used_chunks, 0);
  EXPECT_EQ(driver.scheduler().stats().running, 0);
}

TEST(Scheduler, SampleModeFollowsTheRows) {
  const auto plan_of = [](const auto& change) {
    Scheduler scheduler(SchedulerConfig{small_limits(), true, {kEos}});
    Request request = make_request(1, 4, 4);
    change(request.params);
    scheduler.add(request);
    return scheduler.plan();
  };
  EXPECT_EQ(plan_of([](auto&) {}).sample_mode, SampleMode::kBest);
  EXPECT_EQ(plan_of([](auto& p) { p.temperature = 0.5f; }).sample_mode, SampleMode::kBest);
  EXPECT_EQ(plan_of([](auto& p) { p.top_p = 0.5f; }).sample_mode, SampleMode::kBest)
      << "greedy stays greedy";
  const auto nucleus = plan_of([](auto& p) { p.temperature = 1, p.top_p = 0.5f; });
  EXPECT_EQ(nucleus.sample_mode, SampleMode::kFull);
  EXPECT_FALSE(nucleus.logprobs);
  const auto logprobs = plan_of([](auto& p) { p.logprobs = 0; });
  EXPECT_EQ(logprobs.sample_mode, SampleMode::kFull);
  EXPECT_TRUE(logprobs.logprobs);
  EXPECT_FALSE(logprobs.process_logits);
  EXPECT_TRUE(plan_of([](auto& p) { p.logit_bias = {{3, 1.0f}}; }).process_logits);
  const auto words = plan_of([](auto& p) { p.bad_words = {{11}}, p.allowed_token_ids = {1, 11}; });
  EXPECT_TRUE(words.process_logits);
  ASSERT_EQ(words.inits.size(), 1u);
  EXPECT_EQ(words.inits[0].allowed, (Tokens{1, 11}));
  ASSERT_EQ(words.inits[0].logit_bias.size(), 1u);
  EXPECT_EQ(words.inits[0].logit_bias[0].first, 11);
  EXPECT_LT(words.inits[0].logit_bias[0].second, -1e30f);
}

TEST(Scheduler, LogprobsAreCutToWhatWasAsked) {
  Driver driver(small_limits());
  Request request = make_request(1, 4, 3);
  request.params.logprobs = 2;
  driver.add(request);
  driver.add(make_request(2, 4, 3, 4));
  driver.run();
  for (const TokenEvent& event : driver.events) {
    ASSERT_EQ(event.logprobs.size(), event.request == 1 ? 3u : 0u);
    if (event.request == 1) {
      EXPECT_EQ(event.logprobs[0].id, event.token);
    }
  }
}

/// One score for each prompt token but the first, in order, with the first token of sample 0.
void expect_scores(const Driver& driver, const Request& request) {
  int found = 0;
  for (const TokenEvent& event : driver.events) {
    if (event.request != request.id || event.prompt_logprobs.empty()) continue;
    EXPECT_EQ(event.sample, 0);
    ++found;
    ASSERT_EQ(event.prompt_logprobs.size(), request.prompt.size() - 1);
    for (std::size_t p = 0; p + 1 < request.prompt.size(); ++p) {
      ASSERT_EQ(event.prompt_logprobs[p].size(), 3u);
      EXPECT_EQ(event.prompt_logprobs[p][0].id, request.prompt[p + 1]);
      EXPECT_EQ(event.prompt_logprobs[p][0].logprob, -static_cast<float>(p));
    }
  }
  EXPECT_EQ(found, 1);
}

TEST(Scheduler, PromptsAreScoredOnceWhateverIsCachedOrForked) {
  Driver driver(small_limits());
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = make_request(id, 200, 6);  // the same prompt each time
    request.params.n = id == 2 ? 5 : 1;
    request.params.temperature = 1;
    request.params.prompt_logprobs = 2;
    request.params.ignore_eos = true;
    driver.add(request);
    if (id != 2) driver.run();
  }
  driver.run();
  for (RequestId id = 1; id <= 3; ++id) expect_scores(driver, make_request(id, 200, 6));
  for (int i = 0; i < 5; ++i) driver.expect_single_run(2, i);
}

TEST(Scheduler, PreemptionDoesNotScoreTwice) {
  auto limits = small_limits();
  limits.num_chunks = limits.mapped_chunks = 14;
  Driver driver(limits);
  std::vector<Request> requests;
  for (RequestId id = 0; id < 8; ++id) {
    Request request = make_request(id, 100 + 10 * static_cast<int>(id), 150, static_cast<int>(id));
    request.params.prompt_logprobs = 2;
    request.params.ignore_eos = true;
    driver.add(request);
    requests.push_back(request);
  }
  driver.run();
  EXPECT_GT(driver.scheduler().stats().preemptions, 0);
  for (const Request& request : requests) {
    expect_scores(driver, request);
    driver.expect_single_run(request.id);
  }
}

TEST(Scheduler, BadWordsOfSeveralTokensReachTheDevice) {
  Scheduler scheduler(SchedulerConfig{small_limits(), true, {kEos}});
  Request request = make_request(1, 4, 4);
  request.params.logit_bias = {{5, 1.0f}, {5, 2.0f}};
  request.params.bad_words = {{5}, {6, 7}, {8, 9, 10}};
  scheduler.add(request);
  const BatchPlan plan = scheduler.plan();
  EXPECT_TRUE(plan.process_logits);
  ASSERT_EQ(plan.inits.size(), 1u);
  ASSERT_EQ(plan.inits[0].logit_bias.size(), 1u);
  EXPECT_LT(plan.inits[0].logit_bias[0].second, -1e30f);
  EXPECT_EQ(plan.inits[0].bad_words, (std::vector<Tokens>{{6, 7}, {8, 9, 10}}));
}

TEST(Scheduler, WhatCanNeverRunIsRefused) {
  auto limits = small_limits();
  limits.num_chunks = limits.mapped_chunks = 5;
  Scheduler scheduler(SchedulerConfig{limits, true, {kEos}});
  const auto refused = [&](const Request& request, const std::string& part) {
    try {
      scheduler.add(request);
      ADD_FAILURE() << "accepted: " << part;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(make_request(1, 0, 4), "no token");
  refused(make_request(1, 1024, 4), "1024 tokens");
  refused(make_request(1, 200, 58), "lower max_tokens");
  refused(make_request(1, 4, 0), "max_tokens");
  Request request = make_request(1, 4, 4);
  for (int i = 0; i < 16; ++i) request.params.stop_token_ids.push_back(100 + i);
  refused(request, "stop token ids");
  request.params.ignore_eos = true;
  scheduler.add(request);
  refused(request, "in use");
  scheduler.add(make_request(2, 200, 57));
  EXPECT_EQ(scheduler.stats().waiting, 2);
}

}  // namespace
}  // namespace tandem::runtime
