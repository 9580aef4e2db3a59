// SPDX-License-Identifier: Apache-2.0
#include "kernels/step.h"

#include "parity/slots.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class Step : public GpuTest {};

TEST_F(Step, EditsEqualTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  Slots slots(cuda, 6, 40);
  std::vector<SlotInitRecord> init_records(2);
  init_records[0].slot = 4;
  init_records[0].length = 7;
  init_records[0].params.seed = 99;
  init_records[0].params.top_k = 3;
  init_records[1].slot = 1;
  Mirror<SlotInitRecord> inits(cuda, init_records);
  std::vector<ChunkAssignRecord> assign_records;
  std::vector<HistoryRecord> history_records;
  for (std::int32_t i = 0; i < 10; ++i) assign_records.push_back({i % 6, i / 6, 100 + i});
  for (std::int32_t i = 0; i < 37; ++i) history_records.push_back({4, i, 1000 + i});
  Mirror<ChunkAssignRecord> assigns(cuda, assign_records);
  Mirror<HistoryRecord> history(cuda, history_records);
  const auto run = [&]<typename D>(Context<D>& ctx) {
    SlotEdits<D> edits;
    edits.inits = inits.on<D>();
    edits.assigns = assigns.on<D>();
    edits.history = history.on<D>();
    edits.num_inits = 2;
    edits.num_assigns = 10;
    edits.num_history = 37;
    edits.slots = slots.view<D>();
    apply_slot_edits(ctx, edits);
  };
  run(cpu);
  run(cuda);
  slots.expect_same(cuda);
}

TEST_F(Step, BeginAndEndEqualTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  Slots slots(cuda, 6, 40);
  slots.set(cuda, 0, 11, 5, false);
  slots.set(cuda, 2, 12, 39, false);
  slots.set(cuda, 3, 13, 8, true);
  slots.set(cuda, 5, 14, 0, false);
  slots.params.host[2].num_stop_ids = 2;
  slots.params.host[2].stop_ids[1] = 77;
  slots.params.device = upload(cuda, slots.params.host);
  // Decode rows: active, padding, active, done. Then two prefill rows of slot 5 and one inert.
  Mirror<std::int32_t> decode_slots(cuda, {2, -1, 0, 3});
  Mirror<std::int32_t> tokens(cuda, {-9, -9, -9, -9, 500, 501, 7});
  Mirror<std::int32_t> positions(cuda, {-9, -9, -9, -9, 0, 1, -1});
  Mirror<std::int32_t> row_slots(cuda, {-9, -9, -9, -9, 5, 5, 1});
  Mirror<std::int32_t> sample_rows(cuda, {0, 1, 2, 3, 5}), sample_slots(cuda, {2, 0, 0, 3, 5});
  Mirror<std::int32_t> sampled(cuda, {77, 70, 77, 71, 72});
  Mirror<std::int32_t> ended(cuda, std::vector<std::int32_t>(12, -8)), turn(cuda, {1});
  Mirror<TokenKey> best(cuda, {0, 0, 0, 0, 0});
  const auto run = [&]<typename D>(Context<D>& ctx) {
    BeginStepArgs<D> begin;
    begin.num_decode = 4;
    begin.decode_slots = decode_slots.on<D>();
    begin.slots = slots.view<D>();
    begin.token_ids = tokens.on<D>();
    begin.positions = positions.on<D>();
    begin.row_slots = row_slots.on<D>();
    begin.num_tokens = 7;
    begin_step(ctx, begin);
    ctx.compute().synchronize();  // the rows are there before a step's last kernel starts
    EndStepArgs<D> end;
    end.samples = {5, sample_rows.on<D>(), sample_slots.on<D>()};
    end.positions = positions.on<D>();
    end.sampled = sampled.on<D>();
    end.best = best.on<D>();
    end.tokens = ended.on<D>();
    end.tokens_stride = 6;
    end.turn = turn.on<D>();
    end.slots = slots.view<D>();
    end_step(ctx, end);
  };
  run(cpu);
  run(cuda);
  slots.expect_same(cuda);
  expect_equal(cuda, tokens, "tokens");
  expect_equal(cuda, positions, "positions");
  expect_equal(cuda, row_slots, "row slots");
  expect_equal(cuda, ended, "ended");
  expect_equal(cuda, turn, "turn");
  EXPECT_EQ(slots.done.host[2], 1);
  EXPECT_EQ(turn.host[0], 0);
  EXPECT_EQ(ended.host, (std::vector<std::int32_t>{-8, -8, -8, -8, -8, -8,  //
                                                   77, -1, 77, -1, 72, -8}));
}

/// More rows than one block has threads; some are done, some stop, some are at the history's end.
TEST_F(Step, EndLeavesTheRowsOfTheNextStep) {
  auto& [cpu, cuda] = Devices::get();
  constexpr int kRows = 1500, kHistory = 20;
  Slots slots(cuda, kRows, kHistory);
  std::vector<std::int32_t> rows, slot_of;
  std::vector<TokenKey> keys(2 * kRows);
  for (int i = 0; i < kRows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    rows.push_back(i);
    slot_of.push_back(kRows - 1 - i);
    slots.length.host[at] = i % kHistory;
    slots.done.host[at] = i % 11 == 0;
    slots.params.host[at].num_stop_ids = i % (kMaxStopIds + 1);
    for (int s = 0; s < kMaxStopIds; ++s) slots.params.host[at].stop_ids[s] = (i + s) % 50;
    keys[at] = token_key(i % 3 == 0 ? 1.5f : -1.5f, i % 40);
    keys[kRows + at] = token_key(0.0f, i % 40 + 1);
  }
  slots.upload_all(cuda);
  Mirror<std::int32_t> sample_rows(cuda, rows), decode_slots(cuda, slot_of), tokens(cuda, rows),
      positions(cuda, rows), row_slots(cuda, rows), turn(cuda, {0}),
      ended(cuda, std::vector<std::int32_t>(2 * kRows, -8));
  Mirror<TokenKey> best(cuda, std::vector<TokenKey>(kRows, 5)), gathered(cuda, keys);
  std::vector<std::int32_t> before;
  const auto run = [&]<typename D>(Context<D>& ctx) {
    begin_step(ctx, BeginStepArgs<D>{kRows, decode_slots.on<D>(), slots.view<D>(), tokens.on<D>(),
                                     positions.on<D>(), row_slots.on<D>(), kRows});
    ctx.compute().synchronize();
    if constexpr (std::same_as<D, Cpu>) before = positions.host;
    EndStepArgs<D> end;
    end.samples = {kRows, sample_rows.on<D>(), decode_slots.on<D>()};
    end.positions = positions.on<D>();
    end.best = best.on<D>();
    end.gathered = gathered.on<D>();
    end.ranks = 2;
    end.tokens = ended.on<D>();
    end.tokens_stride = kRows;
    end.turn = turn.on<D>();
    end.slots = slots.view<D>();
    end.next_tokens = tokens.on<D>();
    end.next_positions = positions.on<D>();
    end_step(ctx, end);
  };
  run(cpu);
  run(cuda);
  slots.expect_same(cuda);
  expect_equal(cuda, tokens, "next tokens");
  expect_equal(cuda, positions, "next positions");
  expect_equal(cuda, ended, "ended");
  for (const TokenKey key : download(cuda, best.device.data(), kRows)) EXPECT_EQ(key, 0u);
  int stopped = 0;
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto slot = static_cast<std::size_t>(slot_of[i]);
    const std::int32_t token = static_cast<std::int32_t>(i % 3 == 0 ? i % 40 : i % 40 + 1);
    const bool active = before[i] >= 0, goes_on = active && slots.done.host[slot] == 0;
    stopped += active && !goes_on;
    EXPECT_EQ(ended.host[i], active ? token : -1);
    EXPECT_EQ(tokens.host[i], goes_on ? token : 0);
    EXPECT_EQ(positions.host[i], goes_on ? before[i] + 1 : -1);
    if (goes_on && before[i] + 1 < kHistory) {
      EXPECT_EQ(slots.history.host[slot * kHistory + static_cast<std::size_t>(before[i] + 1)],
                token);
    }
  }
  EXPECT_GT(stopped, 100);
}

}  // namespace
}  // namespace tandem::kernels
