// SPDX-License-Identifier: Apache-2.0
// The prefill attention kernel and its launcher; the roles are in attend_prefill_*.cuh.
#include "kernels/cuda/attend_prefill.h"

#include <algorithm>

#include "kernels/cuda/attend_prefill_consumer.cuh"
#include "kernels/cuda/attend_prefill_producer.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/device/cuda/dtype.cuh"
#include "kernels/device/cuda/launch.cuh"

namespace tandem::kernels {
namespace prefill {

template <int kRegisters>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kHeadDim>
__device__ __forceinline__ void init_barriers(SharedMemory<kHeadDim>& shared) {
  constexpr int kConsumerWarps = 4 * kConsumers;
  Barriers& barriers = shared.barriers;
  barrier_init(&barriers.q_full, 1);
  barrier_init(&barriers.q_empty, kConsumerWarps);
  for (int stage = 0; stage < TileBytes<kHeadDim>::kStages; ++stage) {
    barrier_init(&barriers.k_full[stage], 1);
    barrier_init(&barriers.v_full[stage], 1);
    barrier_init(&barriers.k_empty[stage], kConsumerWarps);
    barrier_init(&barriers.v_empty[stage], kConsumerWarps);
  }
  fence_barrier_init();
}

template <typename E, int kHeadDim, bool kCount, bool kSplit>
__global__ void __launch_bounds__(kThreads, 1)
    attend_prefill_kernel(const __grid_constant__ Params params) {
  extern __shared__ std::uint8_t dynamic[];
  const std::uint32_t offset = -shared_address(dynamic) % alignof(SharedMemory<kHeadDim>);
  auto& shared = *reinterpret_cast<SharedMemory<kHeadDim>*>(dynamic + offset);
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == 0) {
    give_up_registers<kProducerRegisters>();
    if (threadIdx.x < kWarp) Producer<kHeadDim>(params, shared).run();
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<E, kHeadDim, kCount, kSplit>(params, shared, warpgroup - 1).run();
  }
}

/// K and V of the heads that go together should fit in this much of the L2.
constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;
/// More than any GPU has: bounds the chunk axis of the map over the whole reservation.
constexpr std::int64_t kReservationBytes = std::int64_t{1} << 40;

/// Equal sections of whole groups, so that the last one is as balanced as the others.
template <typename T>
std::int32_t heads_per_section(const AttendArgs<T, Cuda>& args) {
  const auto divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t kv_heads = args.kv.num_kv_heads, q_heads = args.num_q_heads;
  const std::int64_t head_bytes =
      2 * std::int64_t{args.step->max_kv_tokens} * args.kv.head_dim * std::int64_t{sizeof(T)};
  const std::int64_t fitting =
      std::max<std::int64_t>(1, kSectionBytes / std::max<std::int64_t>(head_bytes, 1));
  const std::int64_t sections = divide_up(kv_heads, std::min(fitting, kv_heads));
  const std::int64_t group = divide_up(q_heads, kv_heads);
  return static_cast<std::int32_t>(
      std::min(q_heads, divide_up(divide_up(q_heads, sections), group) * group));
}

template <typename T>
Params make_params(const AttendArgs<T, Cuda>& args) {
  const StepView<Cuda>& step = *args.step;
  const KvView<T, Cuda>& kv = args.kv;
  const std::int64_t size = sizeof(T), dim = kv.head_dim, chunk_bytes = kv.chunk_stride * size;
  constexpr float kLog2E = 1.4426950408889634f;
  Params params{};
  params.q = make_tensor_map(args.q.data, dtype_of<T>,
                             {{dim, 0, kHalfColumns},
                              {args.num_q_heads, dim * size, 1},
                              {step.num_tokens, args.q.stride * size, kRows}});
  params.kv = make_tensor_map(
      kv.base + args.layer * kv.layer_stride, dtype_of<T>,
      {{dim, 0, kHalfColumns},
       {kChunkTokens, dim * size, kChunkTokens},
       {2 * kv.num_kv_heads, kv.head_stride() * size, 1},
       {std::max<std::int64_t>(1, kReservationBytes / chunk_bytes), chunk_bytes, 1}});
  params.segment_begin = step.segment_begin;
  params.positions = step.positions;
  params.slots = step.slots;
  params.chunk_table = kv.chunk_table;
  params.kv_head_of_q = args.kv_head_of_q;
  params.out = args.out.data;
  params.out_stride = args.out.stride;
  params.table_stride = kv.table_stride;
  params.num_segments = step.num_segments;
  params.num_q_heads = args.num_q_heads;
  params.num_kv_heads = kv.num_kv_heads;
  params.heads_per_section = heads_per_section(args);
  params.window = args.window;
  params.splits = 1;
  params.first_row = step.num_decode;
  params.scale_log2 = args.scale * kLog2E;
  return params;
}

/// Into how many parts the keys are dealt so that `tiles` pieces of work fill the GPU.
template <typename T>
int splits_for(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args, std::int64_t tiles) {
  constexpr std::int64_t kMostSplits = 8, kFewestKeyTiles = 8;
  const StepView<Cuda>& step = *args.step;
  std::int64_t keys = step.max_kv_tokens;
  if (args.window > 0) keys = std::min<std::int64_t>(keys, args.window + kRows);
  const std::int64_t splits =
      std::min({kMostSplits, ctx.num_sms() / std::max<std::int64_t>(tiles, 1),
                keys / kKeys / kFewestKeyTiles});
  return static_cast<int>(std::max<std::int64_t>(splits, 1));
}

template <typename T, int kHeadDim>
void launch_splits(Context<Cuda>& ctx, Params& params, LaunchShape shape, std::int64_t rows) {
  using E = cuda_t<T>;
  const std::int64_t parts = rows * params.num_q_heads;
  const std::int64_t floats = parts * params.splits * kHeadDim;
  const Temporary partial = ctx.temporary(static_cast<std::size_t>(floats) * sizeof(float));
  const Temporary stats =
      ctx.temporary(static_cast<std::size_t>(parts * params.splits) * sizeof(float2));
  params.partial = partial.as<float>();
  params.partial_stats = stats.as<float2>();
  launch(ctx, shape,
         params.waits == nullptr ? attend_prefill_kernel<E, kHeadDim, false, true>
                                 : attend_prefill_kernel<E, kHeadDim, true, true>,
         params);
  const auto blocks = static_cast<unsigned>((parts + kCombineWarps - 1) / kCombineWarps);
  launch(ctx, {dim3(blocks), dim3(kCombineWarps * kWarp)}, combine_splits_kernel<E, kHeadDim>,
         params, parts);
}

template <typename T, int kHeadDim>
void launch_prefill(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args, TileWaits* waits) {
  const StepView<Cuda>& step = *args.step;
  const Temporary counter = ctx.temporary(sizeof(std::uint32_t));
  fill_zero(ctx, counter.as<std::uint32_t>(), sizeof(std::uint32_t));
  Params params = make_params(args);
  params.next_work = counter.as<std::uint32_t>();
  params.waits = reinterpret_cast<WaitCycles*>(waits);
  const std::int64_t rows = step.num_tokens - step.num_decode;
  const std::int64_t most_tiles = (rows + step.num_segments * (kRows - 1)) / kRows;
  const std::int64_t most_work = most_tiles * args.num_q_heads;
  params.splits = splits_for(ctx, args, most_work);
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(ctx.num_sms(), most_work * params.splits));
  const LaunchShape shape{dim3(blocks), dim3(kThreads),
                          sizeof(SharedMemory<kHeadDim>) + alignof(SharedMemory<kHeadDim>)};
  using E = cuda_t<T>;
  if (params.splits > 1) return launch_splits<T, kHeadDim>(ctx, params, shape, rows);
  launch(ctx, shape,
         waits == nullptr ? attend_prefill_kernel<E, kHeadDim, false, false>
                          : attend_prefill_kernel<E, kHeadDim, true, false>,
         params);
}

}  // namespace prefill

template <typename T>
bool attend_prefill_supported(const AttendArgs<T, Cuda>& args) {
  const auto aligned = [](const void* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride * sizeof(T) % 16 == 0;
  };
  return sizeof(T) == 2 && (args.kv.head_dim == 64 || args.kv.head_dim == 128) &&
         args.softcap == 0.0f && args.step->num_segments <= prefill::kMaxSegments &&
         aligned(args.q.data, args.q.stride) && aligned(args.out.data, args.out.stride) &&
         aligned(args.kv.base, args.kv.chunk_stride) && aligned(args.kv.base, args.kv.layer_stride);
}

template <typename T>
void attend_prefill(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args, TileWaits* waits) {
  if (args.step->num_segments == 0) return;
  if (args.kv.head_dim == 64)
    prefill::launch_prefill<T, 64>(ctx, args, waits);
  else
    prefill::launch_prefill<T, 128>(ctx, args, waits);
}

template bool attend_prefill_supported(const AttendArgs<float, Cuda>&);
template bool attend_prefill_supported(const AttendArgs<BFloat16, Cuda>&);
template bool attend_prefill_supported(const AttendArgs<Float16, Cuda>&);
template void attend_prefill(Context<Cuda>&, const AttendArgs<BFloat16, Cuda>&, TileWaits*);
template void attend_prefill(Context<Cuda>&, const AttendArgs<Float16, Cuda>&, TileWaits*);

}  // namespace tandem::kernels
