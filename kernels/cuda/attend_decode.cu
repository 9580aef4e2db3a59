// SPDX-License-Identifier: Apache-2.0
// Decode attention: split-KV in one launch (Flash-Decoding, Dao et al. 2023), the query heads of a
// KV head packed into the 8 columns of mma. While rows and KV heads are fewer than SMs, a cluster
// of blocks shares each pair of them; where rows may be long, several clusters do.
//
// Before the PDL wait a block reads the step's row arrays and chunk table and fetches its first
// tiles: all of a short row. Both are complete, because `embed` starts only after everything before
// it has ended, and keys and values before the row's own token come from earlier steps. Only the
// row's own token, the queries and all writes come after the wait; from there on latency is all
// that counts, so that nothing there waits for memory twice.
#include <algorithm>

#include "kernels/cuda/attend_decode_merge.cuh"
#include "kernels/cuda/attend_kernels.h"

namespace tandem::kernels {
namespace {

/// Grid (cluster x kv heads, rows, clusters of a row). Blocks without a share end at once.
template <typename E, int kDim, int kSets>
__global__ void __maxnreg__(kDecodeRegisters / (DecodeShape<kDim, kSets>::kThreads))
    attend_decode_kernel(const DecodeParams<E> p) {
  using Shape = DecodeShape<kDim, kSets>;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ DecodeWarpSums<kDim, kSets> warp_sums;
  __shared__ DecodeInbox<kDim, kSets> inbox;
  __shared__ std::int16_t heads[kDecodeMaxQHeads];
  __shared__ int shared_int;
  pdl_trigger();
  const int row = blockIdx.y, cluster = 1 << p.cluster_shift;
  const int kv_head = blockIdx.x >> p.cluster_shift, rank = blockIdx.x & (cluster - 1);
  const int length = __ldcg(p.positions + row) + 1, slot = __ldcg(p.slots + row);
  const DecodeShare share = share_of(p, length);
  TileSource<E, kDim, kSets> source(p, share, slot, kv_head, length, shared);
  source.fetch_first(false);
  const int num_heads = list_heads(p.kv_head_of_q, p.num_q_heads, kv_head, heads, &shared_int);
  const bool shares = share.blocks > 0 && cluster > 1;
  if (shares) {
    if (threadIdx.x == 0) inbox.open();
    __syncwarp();
    cluster_arrive();
  }
  const E* query[kSets];
  const auto point_at_queries = [&](int base) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int lane = threadIdx.x % 32, i = base + set * 8 + lane / 4;
      query[set] = nullptr;
      if (i < num_heads) query[set] = p.q + row * p.q_stride + heads[i] * kDim + lane % 4 * 8;
      hold(query[set]);
    }
  };
  point_at_queries(0);
  source.aim_at_own();
  pdl_wait();
  if (share.blocks == 0) {
    if (share.clusters == 0 && blockIdx.z == 0 && rank == 0)
      for (int i = threadIdx.x; i < num_heads * kDim; i += Shape::kThreads)
        p.out[row * p.out_stride + heads[i / kDim] * kDim + i % kDim] = from_float<E>(0.0f);
    return;
  }
  DecodeTile<E, kDim, kSets> tile;
  tile.start(query);
  source.fetch_own();
  __syncwarp();
  if (shares) cluster_wait();  // all inboxes are open
  float* stages = reinterpret_cast<float*>(shared);
  for (int base = 0; base < num_heads; base += Shape::kQueries) {
    const int queries = min(Shape::kQueries, num_heads - base);
    if (shares && threadIdx.x == 0) inbox.expect(p.cluster_shift, share.blocks, queries);
    run_tiles(source, p.window, p.score, tile);
    warp_sums.publish(tile, stages, queries);
    __syncthreads();
    merge_pass(p, share, stages, warp_sums, inbox, heads + base, queries, base / Shape::kQueries);
    if (base + Shape::kQueries >= num_heads) break;
    __syncthreads();
    if (shares) {  // all inboxes are read
      cluster_arrive();
      cluster_wait();
    }
    source.fetch_first(true);
    point_at_queries(base + Shape::kQueries);
    tile.start(query);
  }
  if (share.clusters > 1 && is_last_block(p, share, kv_head, &shared_int))
    combine<E, kDim>(p, row, share.clusters, heads, num_heads);
}

/// How a row and KV head is shared: blocks of a cluster, and the most clusters.
struct DecodeSplit {
  int cluster_shift, clusters;
};

/// As many blocks as SMs, so that each finds room beside a block of a matmul, and one SM's memory
/// holds a short row's part. Rows that may be long get more, to be shared out among short ones.
DecodeSplit split_of(Context<Cuda>& ctx, std::int64_t rows, int kv_heads, int q_heads, int head_dim,
                     int max_kv_tokens) {
  constexpr std::int64_t kCrowded = 1024;
  const std::int64_t pairs = rows * kv_heads;
  int shift = 0;
  while (2 << shift <= kDecodeMaxCluster && (pairs * 2) << shift <= ctx.num_sms()) ++shift;
  if (pairs > kCrowded || pairs > ctx.counters().size) return {shift, 1};
  std::int64_t clusters = 1;
  if (max_kv_tokens > kDecodeVeryLongTokens)
    clusters = std::max<std::int64_t>(4, 2 * ctx.num_sms() / (pairs << shift));
  else if (max_kv_tokens > kDecodeLongTokens && shift == 0)
    clusters = 4;
  const std::int64_t fitting = ctx.partials().size / (rows * q_heads * (head_dim + 2));
  return {shift, static_cast<int>(std::max<std::int64_t>(1, std::min(clusters, fitting)))};
}

template <typename T, int kDim, int kSets>
void launch_decode(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  using Shape = DecodeShape<kDim, kSets>;
  const StepView<Cuda>& step = *args.step;
  const int kv_heads = args.kv.num_kv_heads;
  const DecodeSplit split =
      split_of(ctx, step.num_decode, kv_heads, args.num_q_heads, kDim, step.max_kv_tokens);
  DecodeParams<E> p{};
  p.positions = step.positions;
  p.slots = step.slots;
  p.chunk_table = args.kv.chunk_table;
  p.kv_head_of_q = args.kv_head_of_q;
  p.q = to_cuda(args.q.data);
  p.q_stride = args.q.stride;
  p.kv_base = to_cuda(args.kv.base) + args.layer * args.kv.layer_stride;
  p.chunk_stride = args.kv.chunk_stride;
  p.value_offset = args.kv.num_kv_heads * args.kv.head_stride();
  p.out = to_cuda(args.out.data);
  p.out_stride = args.out.stride;
  p.partial = ctx.partials().data;
  p.partial_stats =
      p.partial + std::int64_t{step.num_decode} * args.num_q_heads * split.clusters * kDim;
  p.counters = ctx.counters().data;
  p.score = {args.scale, args.softcap};
  p.table_stride = args.kv.table_stride;
  p.num_q_heads = args.num_q_heads;
  p.num_kv_heads = kv_heads;
  p.num_rows = step.num_decode;
  p.window = args.window;
  p.cluster_shift = split.cluster_shift;
  p.target_blocks = 8 * ctx.num_sms();
  LaunchShape shape =
      dependent(dim3(kv_heads << split.cluster_shift, step.num_decode, split.clusters),
                dim3(Shape::kThreads), Shape::kSharedBytes);
  shape.cluster = 1 << split.cluster_shift;
  launch(ctx, shape, attend_decode_kernel<E, kDim, kSets>, p);
}

/// Query heads are taken in sets of 8: two at once where a KV head has more than 8 and registers
/// are enough.
template <typename T, int kDim>
void launch_sets(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  constexpr int kMostSets = kDim <= 128 ? 2 : 1;
  if (args.num_q_heads <= 8 * args.kv.num_kv_heads)
    launch_decode<T, kDim, 1>(ctx, args);
  else
    launch_decode<T, kDim, kMostSets>(ctx, args);
}

}  // namespace

template <typename T>
bool attend_decode_rows(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  if (args.num_q_heads > kDecodeMaxQHeads || args.q.stride % 8 != 0 || args.out.stride % 2 != 0 ||
      !aligned_to(args.q.data, 16))
    return false;
  switch (args.kv.head_dim) {
    case 64:
      launch_sets<T, 64>(ctx, args);
      return true;
    case 80:
      launch_sets<T, 80>(ctx, args);
      return true;
    case 96:
      launch_sets<T, 96>(ctx, args);
      return true;
    case 128:
      launch_sets<T, 128>(ctx, args);
      return true;
    case 256:
      launch_sets<T, 256>(ctx, args);
      return true;
    default:
      return false;
  }
}

template bool attend_decode_rows<BFloat16>(Context<Cuda>&, const AttendArgs<BFloat16, Cuda>&);
template bool attend_decode_rows<Float16>(Context<Cuda>&, const AttendArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
