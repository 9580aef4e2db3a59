// SPDX-License-Identifier: Apache-2.0
// An engine without a model, for tests of what drives engines. It keeps slots, chunk tables and
// chunks exactly as a device would; the "KV" of a token is the token itself and its position. Each
// row reads its whole history back through the chunk table, and the next token is a hash of what
// it read, so any wrong chunk, position or copy changes the answer; most are reported at once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/error.h"
#include "runtime/engine.h"
#include "runtime/request.h"
#include "runtime/sequence.h"

namespace tandem::testing {

class FakeEngine : public runtime::Engine {
 public:
  FakeEngine(runtime::EngineLimits limits, std::int32_t vocab) : limits_(limits), vocab_(vocab) {
    slots_.resize(static_cast<std::size_t>(limits.max_num_seqs));
    chunks_.resize(static_cast<std::size_t>(limits.num_chunks));
    mapped_ = limits.mapped_chunks;
  }

  /// The token after `history`; greedy sequences ignore the seed.
  static std::int32_t next_token(const std::vector<std::int32_t>& history,
                                 const kernels::SlotParams& params, std::int32_t vocab) {
    std::uint64_t hash = params.temperature > 0 ? params.seed : 1;
    for (const std::int32_t token : history) {
      hash = (hash ^ static_cast<std::uint32_t>(token)) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 29;
    }
    auto token = static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(vocab));
    const auto made = static_cast<std::int32_t>(history.size()) - params.prompt_tokens;
    while (made < params.min_tokens && is_stop(params, token)) token = (token + 1) % vocab;
    return token;
  }

  /// What a request alone gets, from the definition.
  static std::vector<std::int32_t> single_run(const runtime::Request& request,
                                              const std::vector<std::int32_t>& eos_ids,
                                              std::int32_t sample, std::int32_t max_model_len,
                                              std::int32_t vocab) {
    const auto params = runtime::make_slot_params(request, eos_ids, sample);
    std::vector<std::int32_t> history = request.prompt, answer;
    while (static_cast<std::int32_t>(answer.size()) < request.params.max_tokens &&
           static_cast<std::int32_t>(history.size()) < max_model_len) {
      answer.push_back(next_token(history, params, vocab));
      history.push_back(answer.back());
      if (is_stop(params, answer.back())) break;
    }
    return answer;
  }

  const runtime::EngineLimits& limits() const override { return limits_; }

  void submit(const runtime::BatchPlan& plan) override {
    check(done_.size() < 2, "more than two steps in flight");
    check(plan.num_tokens() > 0 && plan.num_tokens() <= limits_.max_num_batched_tokens,
          "token rows");
    apply_edits(plan);
    std::vector<Row> rows;
    std::set<std::int32_t> seen;
    for (const std::int32_t s : plan.decode_slots) {
      check(seen.insert(s).second, "a slot has two rows");
      Slot& slot = slots_.at(s);
      check(slot.used, "decode of an empty slot");
      rows.push_back({s, slot.done ? -1 : slot.length, slot.done ? -1 : slot.last_token, true});
    }
    for (const auto& segment : plan.segments) {
      check(seen.insert(segment.slot).second, "a slot has two rows");
      check(slots_.at(segment.slot).used && !segment.tokens.empty(), "segment");
      for (std::size_t i = 0; i < segment.tokens.size(); ++i) {
        rows.push_back({segment.slot, segment.begin + static_cast<std::int32_t>(i),
                        segment.tokens[i], segment.sample && i + 1 == segment.tokens.size()});
      }
    }
    for (const Row& row : rows) write(row, plan.max_kv_tokens);
    done_.push_back(finish(plan, rows));
    num_steps_ += 1;
    num_rows_ += plan.num_tokens();
  }

  runtime::StepOutput collect() override {
    check(!done_.empty(), "nothing to collect");
    auto output = std::move(done_.front());
    done_.pop_front();
    return output;
  }

  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_rows() const { return num_rows_; }

 private:
  struct Slot {
    bool used = false, done = false;
    std::int32_t length = 0, last_token = -1;
    kernels::SlotParams params;
    std::map<std::int32_t, std::int32_t> table;
    std::vector<std::int32_t> history;
  };
  struct Row {
    std::int32_t slot, position, token;
    bool sample;
  };
  using Chunk = std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>>;  // row: (pos, token)

  static void check(bool ok, const std::string& what) { TANDEM_ASSERT(ok, "fake engine: ", what); }
  static bool is_stop(const kernels::SlotParams& params, std::int32_t token) {
    for (int i = 0; i < params.num_stop_ids; ++i) {
      if (params.stop_ids[i] == token) return true;
    }
    return false;
  }

  void apply_edits(const runtime::BatchPlan& plan) {
    check(plan.step > last_step_, "steps out of order");
    last_step_ = plan.step;
    check(plan.mapped_chunks >= mapped_ && plan.mapped_chunks <= limits_.num_chunks, "growth");
    mapped_ = plan.mapped_chunks;
    for (const auto& init : plan.inits) {
      slots_.at(init.slot) = Slot{};
      slots_[init.slot].used = true;
      slots_[init.slot].params = init.params;
      slots_[init.slot].history = init.history;
      slots_[init.slot].length = static_cast<std::int32_t>(init.history.size());
    }
    for (const auto& assign : plan.assigns) {
      check(assign.chunk > 0 && assign.chunk < mapped_, "a chunk that is not mapped");
      check(assign.index == static_cast<std::int32_t>(slots_.at(assign.slot).table.size()),
            "chunks are assigned in order");
      slots_[assign.slot].table[assign.index] = assign.chunk;
    }
    for (const auto& copy : plan.chunk_copies) chunks_.at(copy.to) = chunks_.at(copy.from);
  }

  void write(const Row& row, std::int32_t max_kv_tokens) {
    if (row.position < 0) return;
    check(row.position < max_kv_tokens, "max_kv_tokens is too small");
    Slot& slot = slots_[row.slot];
    const auto at = slot.table.find(row.position / kernels::kChunkTokens);
    check(at != slot.table.end(), "a position without a chunk");
    chunks_[at->second][row.position % kernels::kChunkTokens] = {row.position, row.token};
    check(static_cast<std::int32_t>(slot.history.size()) == row.position, "history has a gap");
    slot.history.push_back(row.token);
  }

  /// The history as attention sees it.
  std::vector<std::int32_t> read(const Slot& slot, std::int32_t tokens) const {
    std::vector<std::int32_t> history;
    for (std::int32_t p = 0; p < tokens; ++p) {
      const Chunk& chunk = chunks_[slot.table.at(p / kernels::kChunkTokens)];
      const auto entry = chunk.find(p % kernels::kChunkTokens);
      check(entry != chunk.end() && entry->second.first == p, "KV of another position");
      check(entry->second.second == slot.history.at(p), "KV of another token");
      history.push_back(entry->second.second);
    }
    return history;
  }

  runtime::StepOutput finish(const runtime::BatchPlan& plan, const std::vector<Row>& rows) {
    runtime::StepOutput output;
    output.step = plan.step;
    for (const auto& segment : plan.segments) score(segment, output);
    for (const Row& row : rows) {
      if (!row.sample) continue;
      output.tokens.push_back(row.position < 0 ? -1 : sample(row));
      if (!plan.logprobs) continue;
      for (int i = 0; i <= kernels::kMaxLogprobs; ++i) {
        output.logprobs.push_back({-0.5f * static_cast<float>(i), output.tokens.back() + i});
      }
    }
    return output;
  }

  /// A row's "log-probability" is its negative position.
  static void score(const runtime::PrefillSegment& segment, runtime::StepOutput& output) {
    check(segment.score_begin + segment.score_targets.size() <= segment.tokens.size(), "scores");
    for (std::size_t i = 0; i < segment.score_targets.size(); ++i) {
      const auto row = static_cast<std::size_t>(segment.score_begin) + i;
      check(row + 1 >= segment.tokens.size() || segment.tokens[row + 1] == segment.score_targets[i],
            "a score of another token");
      for (int k = 0; k <= kernels::kMaxLogprobs; ++k)
        output.scores.push_back(
            {-static_cast<float>(segment.begin + static_cast<std::int32_t>(row)),
             segment.score_targets[i] + k});
    }
  }

  std::int32_t sample(const Row& row) {
    Slot& slot = slots_[row.slot];
    const std::int32_t token = next_token(read(slot, row.position + 1), slot.params, vocab_);
    slot.length = row.position + 1;
    slot.last_token = token;
    slot.done = is_stop(slot.params, token);
    return token;
  }

  runtime::EngineLimits limits_;
  std::int32_t vocab_, mapped_ = 0;
  std::int64_t last_step_ = -1, num_steps_ = 0, num_rows_ = 0;
  std::vector<Slot> slots_;
  std::vector<Chunk> chunks_;
  std::deque<runtime::StepOutput> done_;
};

}  // namespace tandem::testing
