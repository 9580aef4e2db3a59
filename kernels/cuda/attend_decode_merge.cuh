// SPDX-License-Identifier: Apache-2.0
// How the parts of a row's decode attention become one: the warps of a block through its shared
// memory, the blocks of a cluster by storing into each other's, the clusters through global memory,
// where the last block to come combines them. Every sum is taken in the order of the tokens.
// Device code only.
#pragma once

#include "kernels/cuda/attend_decode_source.cuh"
#include "kernels/cuda/cluster.cuh"

namespace tandem::kernels {

/// Two neighbouring dims of one query, summed under weights relative to `max`.
struct DecodeSum {
  float max;
  float2 value;
  float total;
};

/// Weighted sum of parts [0, count) of at most kMost; `stats(i)`: maximum and total, `value(i)`.
/// All loads are under way together.
template <int kMost, typename Stats, typename Value>
__device__ __forceinline__ DecodeSum sum_parts(int count, const Stats& stats, const Value& value) {
  float2 s[kMost], v[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    s[i] = {-INFINITY, 0.0f};
    v[i] = {0.0f, 0.0f};
    if (i < count) {
      s[i] = stats(i);
      v[i] = value(i);
    }
  }
  DecodeSum sum{-INFINITY, {0.0f, 0.0f}, 0.0f};
#pragma unroll
  for (int i = 0; i < kMost; ++i) sum.max = fmaxf(sum.max, s[i].x);
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const float weight = exp2_approximate(s[i].x - sum.max);
    sum.value.x += weight * v[i].x;
    sum.value.y += weight * v[i].y;
    sum.total += weight * s[i].y;
  }
  return sum;
}

/// The sums of a block's warps: in its shared memory, over the tiles that they have read.
template <int kDim, int kSets>
struct DecodeWarpSums {
  using Shape = DecodeShape<kDim, kSets>;
  float2 stats[Shape::kWarps][Shape::kQueries];  ///< Maximum and total.

  /// Floats in a warp's stage: [kQueries][kPitch], without bank conflicts for `publish`.
  __device__ static int place(int query, int dim) {
    return query * Shape::kPitch + (dim ^ (query / 2 % 4 * 8));
  }
  template <typename E>
  __device__ void publish(const DecodeTile<E, kDim, kSets>& tile, float* stages, int queries) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float* mine = stages + warp * Shape::kHalf;
#pragma unroll
    for (int set = 0; set < kSets; ++set)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int query = set * 8 + t * 2 + c;
        if (query >= queries) continue;
#pragma unroll
        for (int d = 0; d < kDim / 16; ++d)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            mine[place(query, d * 16 + half * 8 + g)] = tile.out[set][d][half * 2 + c];
        if (g == 0) stats[warp][query] = {tile.max[set][c], tile.sum[set][c]};
      }
  }
  /// Of the first `warps` warps.
  __device__ DecodeSum sum(const float* stages, int warps, int query, int dim) const {
    return sum_parts<Shape::kWarps>(
        warps, [&](int w) { return stats[w][query]; },
        [&](int w) {
          return *reinterpret_cast<const float2*>(stages + w * Shape::kHalf + place(query, dim));
        });
  }
};

/// The sums of a cluster's blocks. Each block is sent a slice of the pairs of dims, a power of two
/// of them, by all blocks that have tiles, and adds them up; a barrier counts the bytes that come.
template <int kDim, int kSets>
struct DecodeInbox {
  using Shape = DecodeShape<kDim, kSets>;
  static constexpr int kPairs = Shape::kQueries * (kDim <= 64 ? 32 : kDim <= 128 ? 64 : 128);
  float2 values[kPairs];                             ///< [sender][slice]
  float2 stats[kDecodeMaxCluster][Shape::kQueries];  ///< Maximum and total, of each sender.
  std::uint64_t arrived;

  static __device__ int slice_shift(int pairs, int cluster_shift) {
    return 32 - __clz(pairs - 1) - cluster_shift;
  }
  /// One thread, before the first pass; then a cluster barrier.
  __device__ void open() {
    barrier_init(&arrived, 1);
    fence_barrier_init();
  }
  /// One thread, in each pass: what `senders` blocks send to this one.
  __device__ void expect(int cluster_shift, int senders, int queries) {
    const int pairs = queries * (kDim / 2), shift = slice_shift(pairs, cluster_shift);
    const int rank = blockIdx.x & ((1 << cluster_shift) - 1);
    const int mine = max(0, min(pairs - (rank << shift), 1 << shift));
    barrier_arrive_expect(&arrived, static_cast<std::uint32_t>(senders * (mine + queries) * 8));
  }
  /// Pair `index` of the pass, to the block whose slice it is in.
  __device__ void send(int index, int shift, int rank, float2 value) {
    const int to = index >> shift, at = (rank << shift) + (index & ((1 << shift) - 1));
    cluster_store(cluster_address(values + at, to), value, cluster_address(&arrived, to));
  }
  __device__ void send_stats(int to, int query, int rank, float2 value) {
    cluster_store(cluster_address(&stats[rank][query], to), value, cluster_address(&arrived, to));
  }
  /// Pair `index` of this block's slice, of the first `senders` blocks.
  __device__ DecodeSum sum(int senders, int shift, int index, int query) const {
    return sum_parts<kDecodeMaxCluster>(
        senders, [&](int b) { return stats[b][query]; },
        [&](int b) { return values[(b << shift) + index]; });
  }
};

/// Where results go: the output, or this cluster's partial sums of a row that has several.
template <typename E, int kDim>
__device__ __forceinline__ void store_sum(const DecodeParams<E>& p, int head, int dim,
                                          bool is_whole, const DecodeSum& sum) {
  const int row = blockIdx.y;
  if (is_whole) {
    *reinterpret_cast<std::uint32_t*>(p.out + row * p.out_stride + head * kDim + dim) =
        pack2<E>(__fdividef(sum.value.x, sum.total), __fdividef(sum.value.y, sum.total));
    return;
  }
  const std::int64_t index = (std::int64_t{row} * p.num_q_heads + head) * gridDim.z + blockIdx.z;
  *reinterpret_cast<float2*>(p.partial + index * kDim + dim) = sum.value;
  if (dim == 0) *reinterpret_cast<float2*>(p.partial_stats + index * 2) = {sum.max, sum.total};
}

/// What the warps have published to where it goes, by way of the cluster's inboxes if there is a
/// cluster. By all threads; `heads` [queries].
template <typename E, int kDim, int kSets>
__device__ void merge_pass(const DecodeParams<E>& p, const DecodeShare& share, const float* stages,
                           const DecodeWarpSums<kDim, kSets>& warp_sums,
                           DecodeInbox<kDim, kSets>& inbox, const std::int16_t* heads, int queries,
                           int pass) {
  using Shape = DecodeShape<kDim, kSets>;
  constexpr unsigned kHalf = kDim / 2;
  const bool is_whole = share.clusters == 1;
  const unsigned cluster = 1u << p.cluster_shift, rank = blockIdx.x & (cluster - 1);
  const unsigned pairs = queries * kHalf;
  const int shift = inbox.slice_shift(static_cast<int>(pairs), p.cluster_shift);
  const int warps = min(Shape::kWarps, share.end - share.begin);
  for (unsigned i = threadIdx.x; i < pairs && warps > 0; i += Shape::kThreads) {
    const unsigned query = i / kHalf, half = i % kHalf;
    const DecodeSum sum = warp_sums.sum(stages, warps, query, half * 2);
    if (cluster == 1) {
      store_sum<E, kDim>(p, heads[query], half * 2, is_whole, sum);
      continue;
    }
    inbox.send(i, shift, rank, sum.value);
    if (half < cluster) inbox.send_stats(half, query, rank, {sum.max, sum.total});
  }
  if (cluster == 1) return;
  barrier_wait(&inbox.arrived, pass & 1);
  const unsigned first = rank << shift, end = min(pairs, first + (1u << shift));
  for (unsigned i = first + threadIdx.x; i < end; i += Shape::kThreads)
    store_sum<E, kDim>(p, heads[i / kHalf], i % kHalf * 2, is_whole,
                       inbox.sum(share.blocks, shift, i - first, i / kHalf));
}

/// Whether this block is the last of its row and KV head to have stored partial sums, those of the
/// others being visible then. By all threads.
template <typename E>
__device__ bool is_last_block(const DecodeParams<E>& p, const DecodeShare& share, int kv_head,
                              int* shared) {
  __threadfence();
  __syncthreads();
  std::int32_t* counter = p.counters + blockIdx.y * p.num_kv_heads + kv_head;
  if (threadIdx.x == 0) {
    *shared = atomicAdd(counter, 1) == (share.clusters << p.cluster_shift) - 1;
    if (*shared != 0) *counter = 0;
  }
  __syncthreads();
  __threadfence();
  return *shared != 0;
}

/// The last block of the row and KV head sums the clusters of its query heads, a warp per head.
template <typename E, int kDim>
__device__ void combine(const DecodeParams<E>& p, int row, int clusters, const std::int16_t* heads,
                        int num_heads) {
  const int lane = threadIdx.x % 32;
  for (int h = threadIdx.x / 32; h < num_heads; h += static_cast<int>(blockDim.x) / 32) {
    const std::int64_t index = (std::int64_t{row} * p.num_q_heads + heads[h]) * gridDim.z;
    const float* stats = p.partial_stats + index * 2;
    float maximum = -INFINITY;
    for (int s = lane; s < clusters; s += 32) maximum = fmaxf(maximum, __ldcg(stats + s * 2));
    maximum = warp_max(maximum);
    float total = 0;
    for (int s = lane; s < clusters; s += 32)
      total += __ldcg(stats + s * 2 + 1) * exp2_approximate(__ldcg(stats + s * 2) - maximum);
    const float inverse = 1.0f / warp_sum(total);
    for (int d = lane * 2; d < kDim; d += 64) {
      float2 sum = {0, 0};
#pragma unroll 4
      for (int s = 0; s < clusters; ++s) {
        const float weight = exp2_approximate(__ldcg(stats + s * 2) - maximum);
        const float2 part =
            __ldcg(reinterpret_cast<const float2*>(p.partial + (index + s) * kDim + d));
        sum.x += weight * part.x;
        sum.y += weight * part.y;
      }
      *reinterpret_cast<std::uint32_t*>(p.out + row * p.out_stride + heads[h] * kDim + d) =
          pack2<E>(sum.x * inverse, sum.y * inverse);
    }
  }
}

}  // namespace tandem::kernels
