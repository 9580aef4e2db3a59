// SPDX-License-Identifier: Apache-2.0
// Start and end of a step on the device: decode rows take their token and position from their
// slot, and sampled tokens go back into it. So step n + 1 needs nothing from the host that depends
// on the tokens of step n.
#pragma once

#include "kernels/step_view.h"
#include "kernels/token_key.h"

namespace tandem::kernels {

/// Rows whose logits are wanted, in sample order.
template <Device D>
struct SampleView {
  std::int32_t num_samples = 0;
  const std::int32_t* rows = nullptr;   ///< [num_samples] row of the token buffer
  const std::int32_t* slots = nullptr;  ///< [num_samples]
};

/// A sequence takes a slot: parameters are set, the done flag is cleared.
struct SlotInitRecord {
  std::int32_t slot = 0;
  std::int32_t length = 0;  ///< Tokens that came with cached chunks.
  SlotParams params;
};
/// chunk_table[slot][index] = chunk
struct ChunkAssignRecord {
  std::int32_t slot = 0, index = 0, chunk = 0;
};
/// history[slot][position] = token, for tokens that came with cached chunks.
struct HistoryRecord {
  std::int32_t slot = 0, position = 0, token = 0;
};

/// What a plan changes in the slots, applied in this order; the arrays are device memory.
template <Device D>
struct SlotEdits {
  const SlotInitRecord* inits = nullptr;
  const ChunkAssignRecord* assigns = nullptr;
  const HistoryRecord* history = nullptr;
  std::int32_t num_inits = 0, num_assigns = 0, num_history = 0;
  SlotView<D> slots;
};

/// Enqueued on the compute stream.
void apply_slot_edits(Context<Cpu>& ctx, const SlotEdits<Cpu>& edits);
void apply_slot_edits(Context<Cuda>& ctx, const SlotEdits<Cuda>& edits);

template <Device D>
struct BeginStepArgs {
  std::int32_t num_decode = 0;
  const std::int32_t* decode_slots = nullptr;  ///< [num_decode]; negative: padding row
  SlotView<D> slots;
  std::int32_t* token_ids = nullptr;  ///< [num_tokens]; decode rows are written
  std::int32_t* positions = nullptr;  ///< [num_tokens]; decode rows are written, -1 when done
  std::int32_t* row_slots = nullptr;  ///< [num_tokens]; decode rows are written
  std::int32_t num_tokens = 0;        ///< Prefill rows are recorded in the slots' history.
};

/// Fills the decode rows from their slots, and writes every active row's token into
/// `history[slot][position]`. Enqueued on the compute stream.
void begin_step(Context<Cpu>& ctx, const BeginStepArgs<Cpu>& args);
void begin_step(Context<Cuda>& ctx, const BeginStepArgs<Cuda>& args);

template <Device D>
struct EndStepArgs {
  SampleView<D> samples;
  const std::int32_t* positions = nullptr;  ///< [num_tokens] of the step
  const std::int32_t* sampled = nullptr;    ///< [num_samples], or null: the best of the keys.
  TokenKey* best = nullptr;                 ///< [num_samples] of `best_of_shard`; 0 afterwards.
  const TokenKey* gathered = nullptr;  ///< [ranks, num_samples] `best` of all ranks; null: one.
  std::int32_t ranks = 1;
  /// Two arrays [num_samples] that lie `tokens_stride` apart take turns, so that one can be brought
  /// to the host during the next step: that of number `turn[0]` gets the tokens, -1 for inert rows,
  /// and `turn[0]` becomes the other.
  std::int32_t* tokens = nullptr;
  std::int64_t tokens_stride = 0;
  std::int32_t* turn = nullptr;
  SlotView<D> slots;
  /// Rows of the next step, if it is of the same sequences: as `begin_step` would fill them. Null:
  /// not wanted. `next_positions` may be `positions`.
  std::int32_t* next_tokens = nullptr;
  std::int32_t* next_positions = nullptr;
};

/// Per active sample: last_token = token, length = position + 1, done = 1 when the token is a stop
/// id. Enqueued on the compute stream; rows and slots of the step have been complete for a kernel.
void end_step(Context<Cpu>& ctx, const EndStepArgs<Cpu>& args);
void end_step(Context<Cuda>& ctx, const EndStepArgs<Cuda>& args);

}  // namespace tandem::kernels
