// SPDX-License-Identifier: Apache-2.0
#include "kernels/step.h"

#include <algorithm>

#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kBlockThreads = 1024;  // most of a kernel of one block

/// One block: the kinds of edits are applied one after the other.
__global__ void __launch_bounds__(kBlockThreads) slot_edits_kernel(SlotEdits<Cuda> edits) {
  pdl_wait();
  pdl_trigger();
  const SlotView<Cuda>& slots = edits.slots;
  for (int i = threadIdx.x; i < edits.num_inits; i += kBlockThreads) {
    const SlotInitRecord& init = edits.inits[i];
    slots.params[init.slot] = init.params;
    slots.last_token[init.slot] = 0;
    slots.length[init.slot] = init.length;
    slots.done[init.slot] = 0;
  }
  for (int i = threadIdx.x; i < edits.num_assigns; i += kBlockThreads) {
    const ChunkAssignRecord& assign = edits.assigns[i];
    slots.chunk_table[std::int64_t{assign.slot} * slots.table_stride + assign.index] = assign.chunk;
  }
  for (int i = threadIdx.x; i < edits.num_history; i += kBlockThreads) {
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

/// What is known of a sample before its token is.
struct EndingSample {
  std::int32_t row, slot, position;
  std::int32_t stops[kMaxStopIds];
  __device__ EndingSample(const EndStepArgs<Cuda>& args, int sample)
      : row(args.samples.rows[sample]),
        slot(args.samples.slots[sample]),
        position(args.positions[row]) {
    const SlotParams& params = args.slots.params[slot];
#pragma unroll
    for (int i = 0; i < kMaxStopIds; ++i)
      stops[i] = i < params.num_stop_ids ? params.stop_ids[i] : -1;
  }
};

/// The best token of a sample over the ranks.
__device__ std::int32_t take_best(const EndStepArgs<Cuda>& args, int sample) {
  TokenKey winner = 0;
  const TokenKey* keys = args.gathered == nullptr ? args.best : args.gathered;
  for (int rank = 0; rank < args.ranks; ++rank)
    winner = max(winner, __ldcg(keys + rank * args.samples.num_samples + sample));
  args.best[sample] = 0;
  return candidate_of(winner).id;
}

__device__ void end_sample(const EndStepArgs<Cuda>& args, int sample, const EndingSample& s,
                           std::int32_t* tokens) {
  const std::int32_t token =
      args.sampled != nullptr ? args.sampled[sample] : take_best(args, sample);
  tokens[sample] = s.position < 0 ? -1 : token;
  if (s.position < 0) return;
  bool stop = false;
#pragma unroll
  for (int i = 0; i < kMaxStopIds; ++i) stop = stop || s.stops[i] == token;
  const SlotView<Cuda>& slots = args.slots;
  const std::int32_t next = s.position + 1;
  slots.last_token[s.slot] = token;
  slots.length[s.slot] = next;
  slots.done[s.slot] = stop ? 1 : 0;
  if (args.next_tokens == nullptr) return;
  args.next_tokens[s.row] = stop ? 0 : token;
  args.next_positions[s.row] = stop ? -1 : next;
  if (!stop && next < slots.history_stride)
    slots.history[std::int64_t{s.slot} * slots.history_stride + next] = token;
}

/// One block, which passes the turn on when all its threads know it.
__global__ void __launch_bounds__(kBlockThreads) end_step_kernel(const EndStepArgs<Cuda> args) {
  pdl_trigger();
  // Rows and slots of a step are complete before its first layer starts.
  int sample = threadIdx.x;
  const EndingSample first(args, min(sample, args.samples.num_samples - 1));
  const std::int32_t turn = *args.turn;
  __syncthreads();
  pdl_wait();
  if (threadIdx.x == 0) *args.turn = turn ^ 1;
  std::int32_t* tokens = args.tokens + turn * args.tokens_stride;
  if (sample < args.samples.num_samples) end_sample(args, sample, first, tokens);
  for (sample += blockDim.x; sample < args.samples.num_samples; sample += blockDim.x)
    end_sample(args, sample, EndingSample(args, sample), tokens);
}

}  // namespace

void apply_slot_edits(Context<Cuda>& ctx, const SlotEdits<Cuda>& edits) {
  if (edits.num_inits + edits.num_assigns + edits.num_history == 0) return;
  launch(ctx, dependent(dim3(1), dim3(kBlockThreads)), slot_edits_kernel, edits);
}

void begin_step(Context<Cuda>& ctx, const BeginStepArgs<Cuda>& args) {
  if (args.num_tokens == 0) return;
  launch(ctx, dependent(dim3((args.num_tokens + kThreads - 1) / kThreads), dim3(kThreads)),
         begin_step_kernel, args);
}

void end_step(Context<Cuda>& ctx, const EndStepArgs<Cuda>& args) {
  if (args.samples.num_samples == 0) return;
  const int warps = std::min((args.samples.num_samples + 31) / 32, kBlockThreads / 32);
  launch(ctx, dependent(dim3(1), dim3(warps * 32)), end_step_kernel, args);
}

}  // namespace tandem::kernels
