// SPDX-License-Identifier: Apache-2.0
// Inputs of the sampling ops on the CPU: `draws` samples of one sequence at positions 0, 1, ...,
// all with the same logits, and what each draws. One problem per test.
#pragma once

#include <numeric>
#include <vector>

#include "kernels/device/cpu/context.h"
#include "kernels/sample.h"

namespace tandem::kernels {

struct SamplingProblem {
  SamplingProblem(std::vector<float> one_row, std::int32_t num_draws, SlotParams sampling)
      : row(std::move(one_row)),
        params{sampling},
        rows(static_cast<std::size_t>(num_draws)),
        slots(rows.size(), 0),
        positions(rows.size()),
        draws(num_draws) {
    std::iota(rows.begin(), rows.end(), 0);
    std::iota(positions.begin(), positions.end(), 0);
  }

  SampleView<Cpu> samples() const { return {draws, rows.data(), slots.data()}; }
  SlotView<Cpu> slot_view() {
    SlotView<Cpu> view;
    view.num_slots = static_cast<std::int32_t>(params.size());
    view.params = params.data();
    last_token.resize(params.size());
    length.resize(params.size());
    done.resize(params.size());
    view.last_token = last_token.data();
    view.length = length.data();
    view.done = done.data();
    return view;
  }
  std::int64_t vocab() const { return static_cast<std::int64_t>(row.size()); }

  /// `sample_full`; the padding columns of each row would win if they were looked at.
  std::vector<std::int32_t> sample_whole_rows() {
    constexpr std::int64_t kPadding = 3;
    std::vector<float> logits;
    for (std::int32_t i = 0; i < draws; ++i) {
      logits.insert(logits.end(), row.begin(), row.end());
      logits.insert(logits.end(), kPadding, 1e9f);
    }
    std::vector<std::int32_t> tokens(rows.size(), -1);
    FullSampleArgs<Cpu> args;
    args.samples = samples();
    args.positions = positions.data();
    args.slots = slot_view();
    args.logits = {logits.data(), draws, vocab() + kPadding};
    args.vocab_size = vocab();
    args.tokens = tokens.data();
    sample_full(context, args);
    return tokens;
  }

  /// `best_of_shard` on each of the shards that begin at `begins`, then `end_step`.
  std::vector<std::int32_t> sample_shards(std::vector<std::int64_t> begins) {
    const int ranks = static_cast<int>(begins.size());
    const std::int64_t padded = vocab() + 5;
    begins.push_back(padded);
    std::vector<TokenKey> best;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> whole = row;
      whole.resize(static_cast<std::size_t>(padded), 1e9f);
      std::vector<float> logits;
      for (std::int32_t i = 0; i < draws; ++i)
        logits.insert(logits.end(), whole.begin() + begins[rank], whole.begin() + begins[rank + 1]);
      ShardArgs<Cpu> args;
      args.samples = samples();
      args.positions = positions.data();
      args.slots = slot_view();
      args.logits = {logits.data(), draws, begins[rank + 1] - begins[rank]};
      args.vocab_begin = begins[rank];
      args.vocab_size = vocab();
      best.resize(best.size() + rows.size());
      best_of_shard(context, args, best.data() + best.size() - rows.size());
    }
    std::vector<std::int32_t> tokens(rows.size(), -1);
    std::vector<TokenKey> own(rows.size());
    std::int32_t turn = 0;
    EndStepArgs<Cpu> end;
    end.samples = samples();
    end.positions = positions.data();
    end.best = own.data();
    end.gathered = best.data();
    end.ranks = ranks;
    end.tokens = tokens.data();
    end.turn = &turn;
    end.slots = slot_view();
    end_step(context, end);
    return tokens;
  }

  Context<Cpu> context{1};
  std::vector<float> row;
  std::vector<SlotParams> params;
  std::vector<std::int32_t> rows, slots, positions, last_token, length;
  std::vector<std::uint8_t> done;
  std::int32_t draws;
};

}  // namespace tandem::kernels
