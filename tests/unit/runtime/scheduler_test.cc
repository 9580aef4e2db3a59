// SPDX-License-Identifier: Apache-2.0
#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kernels/device/error.h"
#include "support/fake_engine.h"

namespace tandem::runtime {
namespace {

using testing::FakeEngine;
using Tokens = std::vector<std::int32_t>;
constexpr std::int32_t kVocab = 1000;
constexpr std::int32_t kEos = 7;
constexpr int kC = kernels::kChunkTokens;

EngineLimits small_limits() {
  EngineLimits limits;
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 128;
  limits.max_model_len = 1024;
  limits.num_chunks = 64;
  limits.mapped_chunks = 64;
  return limits;
}

/// Drives scheduler and fake engine one step ahead, as `EngineLoop` does.
class Driver {
 public:
  explicit Driver(EngineLimits limits, bool prefix_caching = true)
      : limits_(limits),
        engine_(limits, kVocab),
        scheduler_(SchedulerConfig{limits, prefix_caching, {kEos}}) {}

  void add(Request request) {
    scheduler_.add(request);
    requests_[request.id] = request;
  }

  /// One turn: plan, submit, then the tokens of the plan before it. False when idle.
  bool turn() {
    BatchPlan plan = scheduler_.plan();
    uncommitted_ = in_flight_;
    if (limits_.synchronous && in_flight_ > 0) commit();
    const bool rows = plan.num_tokens() > 0;
    if (rows) {
      plan = deserialize(serialize(plan));
      expect_nothing_in_flight_is_reused(plan);
      engine_.submit(plan);
      plans.push_back(plan);
      ++in_flight_;
    }
    if (!limits_.synchronous && (in_flight_ == 2 || (!rows && in_flight_ > 0))) commit();
    return !scheduler_.idle();
  }

  void run() {
    int turns = 0;
    while (turn()) ASSERT_LT(++turns, 200000) << "no progress";
  }

  void expect_single_run(RequestId id, std::int32_t sample = 0) {
    const Request& request = requests_.at(id);
    const Tokens want =
        FakeEngine::single_run(request, {kEos}, sample, limits_.max_model_len, kVocab);
    EXPECT_EQ(answers[std::make_pair(id, sample)], want)
        << "request " << id << " sample " << sample;
    Sequence sequence;
    sequence.params = make_slot_params(request, {kEos}, sample);
    const bool stop = sequence.is_stop_id(want.back());
    EXPECT_EQ(ends[std::make_pair(id, sample)], stop ? FinishReason::kStop : FinishReason::kLength);
  }

  Scheduler& scheduler() { return scheduler_; }
  FakeEngine& engine() { return engine_; }

  std::map<std::pair<RequestId, std::int32_t>, Tokens> answers;
  std::map<std::pair<RequestId, std::int32_t>, FinishReason> ends;
  std::vector<RequestId> first_tokens;  ///< Requests in the order of their first token.
  std::vector<BatchPlan> plans;
  std::vector<TokenEvent> events;

 private:
  void commit() {
    --in_flight_;
    for (const TokenEvent& event : scheduler_.commit(engine_.collect())) {
      const std::pair<RequestId, std::int32_t> key(event.request, event.sample);
      EXPECT_FALSE(ends.contains(key)) << "an event after the end";
      if (answers[key].empty()) first_tokens.push_back(event.request);
      answers[key].push_back(event.token);
      if (event.finish != FinishReason::kNone) ends[key] = event.finish;
      events.push_back(event);
    }
  }

  /// Slots and chunks of rows whose step was not committed when `plan` was made stay theirs.
  void expect_nothing_in_flight_is_reused(const BatchPlan& plan) {
    std::set<std::int32_t> slots, chunks;
    for (auto p = plans.end() - uncommitted_; p != plans.end(); ++p) {
      slots.insert(p->decode_slots.begin(), p->decode_slots.end());
      for (const PrefillSegment& segment : p->segments) slots.insert(segment.slot);
    }
    for (const std::int32_t slot : slots) {
      chunks.insert(tables_[slot].begin(), tables_[slot].end());
    }
    std::set<std::int32_t> fresh;
    for (const SlotInit& init : plan.inits) {
      EXPECT_FALSE(slots.contains(init.slot)) << "slot " << init.slot;
      tables_[init.slot].clear();
      fresh.insert(init.slot);
    }
    for (const ChunkAssign& assign : plan.assigns) {
      const bool shared =
          fresh.contains(assign.slot) &&
          std::any_of(plan.inits.begin(), plan.inits.end(), [&](const SlotInit& init) {
            return init.slot == assign.slot &&
                   assign.index < static_cast<std::int32_t>(init.history.size()) / kC;
          });
      EXPECT_TRUE(shared || !chunks.contains(assign.chunk)) << "chunk " << assign.chunk;
      tables_[assign.slot].push_back(assign.chunk);
    }
  }

  std::map<std::int32_t, Tokens> tables_;  ///< Chunks by slot.
  int uncommitted_ = 0;
  EngineLimits limits_;
  FakeEngine engine_;
  Scheduler scheduler_;
  int in_flight_ = 0;
  std::map<RequestId, Request> requests_;
};

Request make_request(RequestId id, int prompt_tokens, int max_tokens, int salt = 0) {
  Request request;
  request.id = id;
  for (int i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(10 + static_cast<std::int32_t>((i * 31 + salt * 17) % 900));
  }
  request.params.max_tokens = max_tokens;
  return request;
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
