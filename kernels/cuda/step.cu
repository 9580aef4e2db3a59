// SPDX-License-Identifier: Apache-2.0
#include "kernels/step.h"

#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kEditThreads = 1024;

/// One block: the kinds of edits are applied one after the other.
__global__ void __launch_bounds__(kEditThreads) slot_edits_kernel(SlotEdits<Cuda> edits) {
  pdl_wait();
  pdl_trigger();
  const SlotView<Cuda>& slots = edits.slots;
  for (int i = threadIdx.x; i < edits.num_inits; i += kEditThreads) {
    const SlotInitRecord& init = edits.inits[i];
    slots.params[init.slot] = init.params;
    slots.last_token[init.slot] = 0;
    slots.length[init.slot] = init.length;
    slots.done[init.slot] = 0;
  }
  for (int i = threadIdx.x; i < edits.num_assigns; i += kEditThreads) {
    const ChunkAssignRecord& assign = edits.assigns[i];
    slots.chunk_table[std::int64_t{assign.slot} * slots.table_stride + assign.index] = assign.chunk;
  }
  for (int i = threadIdx.x; i < edits.num_history; i += kEditThreads) {
    const HistoryRecord& record = edits.history[i];
    slots.history[std::int64_t{record.slot} * slots.history_stride + record.position] =
        record.token;
  }
}

__global__ void begin_step_kernel(BeginStepArgs<Cuda> args) {
  pdl_wait();
  pdl_trigger();
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= args.num_tokens) return;
  if (row < args.num_decode) {
    const std::int32_t slot = args.decode_slots[row];
    const bool active = slot >= 0 && args.slots.done[slot] == 0;
    args.row_slots[row] = slot >= 0 ? slot : 0;
    args.positions[row] = active ? args.slots.length[slot] : -1;
    args.token_ids[row] = active ? args.slots.last_token[slot] : 0;
  }
  const std::int32_t position = args.positions[row];
  if (position >= 0 && position < args.slots.history_stride)
    args.slots.history[std::int64_t{args.row_slots[row]} * args.slots.history_stride + position] =
        args.token_ids[row];
}

__global__ void end_step_kernel(EndStepArgs<Cuda> args) {
  pdl_wait();
  pdl_trigger();
  const int sample = blockIdx.x * blockDim.x + threadIdx.x;
  if (sample >= args.samples.num_samples) return;
  const std::int32_t position = args.positions[args.samples.rows[sample]];
  if (position < 0) {
    args.tokens[sample] = -1;
    return;
  }
  const std::int32_t slot = args.samples.slots[sample], token = args.tokens[sample];
  args.slots.last_token[slot] = token;
  args.slots.length[slot] = position + 1;
  const SlotParams& params = args.slots.params[slot];
  bool stop = false;
  for (int i = 0; i < params.num_stop_ids && i < kMaxStopIds; ++i)
    stop = stop || params.stop_ids[i] == token;
  args.slots.done[slot] = stop ? 1 : 0;
}

}  // namespace

void apply_slot_edits(Context<Cuda>& ctx, const SlotEdits<Cuda>& edits) {
  if (edits.num_inits + edits.num_assigns + edits.num_history == 0) return;
  launch(ctx, dependent(dim3(1), dim3(kEditThreads)), slot_edits_kernel, edits);
}

void begin_step(Context<Cuda>& ctx, const BeginStepArgs<Cuda>& args) {
  if (args.num_tokens == 0) return;
  launch(ctx, dependent(dim3((args.num_tokens + kThreads - 1) / kThreads), dim3(kThreads)),
         begin_step_kernel, args);
}

void end_step(Context<Cuda>& ctx, const EndStepArgs<Cuda>& args) {
  if (args.samples.num_samples == 0) return;
  launch(ctx, dependent(dim3((args.samples.num_samples + kThreads - 1) / kThreads), dim3(kThreads)),
         end_step_kernel, args);
}

}  // namespace tandem::kernels
