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
    EndStepArgs<D> end;
    end.samples = {5, sample_rows.on<D>(), sample_slots.on<D>()};
    end.positions = positions.on<D>();
    end.tokens = sampled.on<D>();
    end.slots = slots.view<D>();
    end_step(ctx, end);
  };
  run(cpu);
  run(cuda);
  slots.expect_same(cuda);
  expect_equal(cuda, tokens, "tokens");
  expect_equal(cuda, positions, "positions");
  expect_equal(cuda, row_slots, "row slots");
  expect_equal(cuda, sampled, "sampled");
  EXPECT_EQ(slots.done.host[2], 1);
  EXPECT_EQ(sampled.host[1], -1);
}

}  // namespace
}  // namespace tandem::kernels
