// SPDX-License-Identifier: Apache-2.0
// Drives a scheduler over a fake engine one step ahead, as `EngineLoop` does, keeps what comes out
// and checks what every plan must hold. For tests of the scheduler.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/scheduler.h"
#include "support/fake_engine.h"

namespace tandem::runtime {

using testing::FakeEngine;
using Tokens = std::vector<std::int32_t>;
inline constexpr std::int32_t kVocab = 1000;
inline constexpr std::int32_t kEos = 7;
inline constexpr int kC = kernels::kChunkTokens;

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

inline Request make_request(RequestId id, int prompt_tokens, int max_tokens, int salt = 0) {
  Request request;
  request.id = id;
  for (int i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(10 + static_cast<std::int32_t>((i * 31 + salt * 17) % 900));
  }
  request.params.max_tokens = max_tokens;
  return request;
}

}  // namespace tandem::runtime
