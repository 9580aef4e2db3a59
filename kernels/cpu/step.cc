// SPDX-License-Identifier: Apache-2.0
#include "kernels/step.h"

#include <algorithm>

#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

/// The best token of a sample over the ranks.
std::int32_t take_best(const EndStepArgs<Cpu>& args, std::int32_t sample) {
  TokenKey winner = 0;
  const TokenKey* keys = args.gathered == nullptr ? args.best : args.gathered;
  for (std::int32_t rank = 0; rank < args.ranks; ++rank)
    winner = std::max(winner, keys[rank * args.samples.num_samples + sample]);
  args.best[sample] = 0;
  return candidate_of(winner).id;
}

}  // namespace

void apply_slot_edits(Context<Cpu>&, const SlotEdits<Cpu>& edits) {
  const SlotView<Cpu>& slots = edits.slots;
  for (std::int32_t i = 0; i < edits.num_inits; ++i) {
    const SlotInitRecord& init = edits.inits[i];
    slots.params[init.slot] = init.params;
    slots.last_token[init.slot] = 0;
    slots.length[init.slot] = init.length;
    slots.done[init.slot] = 0;
  }
  for (std::int32_t i = 0; i < edits.num_assigns; ++i) {
    const ChunkAssignRecord& assign = edits.assigns[i];
    slots.chunk_table[std::int64_t{assign.slot} * slots.table_stride + assign.index] = assign.chunk;
  }
  for (std::int32_t i = 0; i < edits.num_history; ++i) {
    const HistoryRecord& record = edits.history[i];
    slots.history[std::int64_t{record.slot} * slots.history_stride + record.position] =
        record.token;
  }
}

void begin_step(Context<Cpu>&, const BeginStepArgs<Cpu>& args) {
  const SlotView<Cpu>& slots = args.slots;
  for (std::int32_t row = 0; row < args.num_decode; ++row) {
    const std::int32_t slot = args.decode_slots[row];
    const bool active = slot >= 0 && slots.done[slot] == 0;
    args.row_slots[row] = std::max(slot, 0);
    args.token_ids[row] = active ? slots.last_token[slot] : 0;
    args.positions[row] = active ? slots.length[slot] : -1;
  }
  for (std::int32_t row = 0; row < args.num_tokens; ++row) {
    const std::int32_t position = args.positions[row];
    if (position >= 0)
      slots.history[std::int64_t{args.row_slots[row]} * slots.history_stride + position] =
          args.token_ids[row];
  }
}

void end_step(Context<Cpu>&, const EndStepArgs<Cpu>& args) {
  if (args.samples.num_samples == 0) return;
  const SlotView<Cpu>& slots = args.slots;
  std::int32_t* tokens = args.tokens + *args.turn * args.tokens_stride;
  *args.turn ^= 1;
  for (std::int32_t i = 0; i < args.samples.num_samples; ++i) {
    const std::int32_t row = args.samples.rows[i], slot = args.samples.slots[i];
    const std::int32_t position = args.positions[row];
    const std::int32_t token = args.sampled != nullptr ? args.sampled[i] : take_best(args, i);
    tokens[i] = position < 0 ? -1 : token;
    if (position < 0) continue;
    const SlotParams& params = slots.params[slot];
    const auto* stops_end = params.stop_ids + params.num_stop_ids;
    const bool stop = std::find(params.stop_ids, stops_end, token) != stops_end;
    slots.last_token[slot] = token;
    slots.length[slot] = position + 1;
    slots.done[slot] = stop ? 1 : 0;
    if (args.next_tokens == nullptr) continue;
    args.next_tokens[row] = stop ? 0 : token;
    args.next_positions[row] = stop ? -1 : position + 1;
    if (!stop && position + 1 < slots.history_stride)
      slots.history[std::int64_t{slot} * slots.history_stride + position + 1] = token;
  }
}

}  // namespace tandem::kernels
