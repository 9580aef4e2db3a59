// SPDX-License-Identifier: Apache-2.0
// The decode matmul of 9 to 64 rows of x (and fewer where `gemv` has no room): y = x W^T, still
// bound by how fast W arrives.
//
// x does not fit into one SM any more, so a cluster of blocks splits K: each block keeps its slice
// of x in shared memory and streams the same slice of K of the cluster's rows of W. A warp owns 32
// rows of a round: two A operands of mma.m16n8k16 against kColumns / 8 B operands. After a round
// the blocks of the cluster exchange their sums through distributed shared memory, added in rank
// order, and each finishes a part of them. W's ring and its fragments are those of `gemv.cuh`.
// Device code only.
#pragma once

#include <algorithm>

#include "kernels/cuda/gemv.cuh"

namespace tandem::kernels {

inline constexpr int kNarrowRows = 32;        // of W, per warp and round
inline constexpr int kNarrowMaxColumns = 64;  // rows of x
inline constexpr int kNarrowPitch = 36;       // floats of a column of sums: no bank conflicts

/// Row r of a warp's 32 that start at `unit`.
struct NarrowRows {
  static constexpr int kUnits = 32;
  __device__ static std::int64_t row(int unit, int r) { return unit + r; }
  __device__ static bool has(int unit, int r, int end) { return unit + r < end; }
};
/// 16 gate rows, then the up rows of the same columns.
struct NarrowPairs {
  static constexpr int kUnits = 16;
  __device__ static std::int64_t row(int unit, int r) {
    const int j = unit + r % 16;
    return j / 16 * 32 + j % 16 + r / 16 * 16;
  }
  __device__ static bool has(int unit, int r, int end) { return unit + r % 16 < end; }
};

/// Sizes that host and device agree on; `stages` of 64 elements of K per block.
template <int kColumns>
struct NarrowLayout {
  static constexpr int kDepth = kColumns <= 32 ? 3 : 2;
  static constexpr int kStageBytes = kNarrowRows * kGemvStage * 2;  // of one warp
  static constexpr int kRingBytes = kDepth * kGemvWarps * kStageBytes;
  static constexpr int kSumsBytes = kGemvWarps * kColumns * kNarrowPitch * 4;
  static int stages(std::int64_t k, int cluster) {
    return static_cast<int>((k + kGemvStage * cluster - 1) / (kGemvStage * cluster));
  }
  static std::size_t bytes(int stages) {
    return kRingBytes + kSumsBytes + std::size_t{2} * stages * kColumns * kGemvStage;
  }
};

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ unsigned cluster_size() {
  unsigned size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
__device__ __forceinline__ void cluster_arrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// A float of another block's shared memory, at the address that `local` has in this one.
__device__ __forceinline__ float load_of_rank(const float* local, unsigned rank) {
  std::uint32_t remote;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(shared_address(local)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
  return value;
}

/// One warp's stream of its rows of W: (round, stage) in order, as `GemvStream`.
template <typename E, typename Rows, int kDepth>
struct NarrowStream {
  static constexpr int kCopies = kNarrowRows / 4;
  const GemvArgs<E>& args;
  unsigned char* const ring;  ///< Of this warp: stages lie kGemvWarps stages apart.
  const std::uint64_t policy;
  const int end, stages, k_lane, place;
  int unit, stage = 0;
  const E* rows[kCopies];
  bool has[kCopies];

  __device__ NarrowStream(const GemvArgs<E>& a, unsigned char* warp_ring, int begin, int end_unit,
                          int stages_of_block, int first_k)
      : args(a),
        ring(warp_ring),
        policy(evict_first_policy()),
        end(end_unit),
        stages(stages_of_block),
        k_lane(first_k + static_cast<int>(threadIdx.x % 8) * 8),
        place(gemv_swizzle(static_cast<int>(threadIdx.x) / 8 % 4, threadIdx.x / 4 % 2) +
              static_cast<int>(threadIdx.x % 4) * 16),
        unit(begin) {
    aim();
  }
  __device__ void aim() {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int r = 4 * i + static_cast<int>(threadIdx.x) / 8 % 4;
      has[i] = Rows::has(unit, r, end);
      rows[i] = args.w + (has[i] ? Rows::row(unit, r) * args.k : 0);
    }
  }
  __device__ void copy(int slot) {
    if (unit < end) {
      const int k = k_lane + stage * kGemvStage;
      const bool inside = k < args.k;
      unsigned char* to = ring + slot * kGemvWarps * kNarrowRows * kGemvStage * 2 + place;
#pragma unroll
      for (int i = 0; i < kCopies; ++i)
        copy_weights(to + i * 512, rows[i] + (inside ? k : 0), policy, has[i] && inside);
      if (++stage == stages) {
        stage = 0;
        unit += Rows::kUnits;
        aim();
      }
    }
    copies_commit();
  }
};

/// Stages the block's slice of x: [step][kColumns][32], zeros past m and k. Ends with a barrier.
template <int kColumns, typename E>
__device__ void narrow_stage_x(const GemvArgs<E>& args, int stages, int first_k, E* to) {
  const int pieces = stages * kGemvStageSteps * kColumns * (kGemvStep / 8);
#pragma unroll 4
  for (int i = threadIdx.x; i < pieces; i += kGemvThreads) {
    const int piece = i % 4, row = i / 4 % kColumns, step = i / 4 / kColumns;
    const int k = first_k + step * kGemvStep + piece * 8;
    uint4 v = {0, 0, 0, 0};
    if (row < args.m && k < args.k)
      v = __ldcg(reinterpret_cast<const uint4*>(args.x + row * args.x_stride + k));
    *reinterpret_cast<uint4*>(to + i * 8) = v;
  }
  __syncthreads();
}

/// This warp's sums of a round to shared memory: [kColumns][32 rows].
template <int kColumns>
__device__ void narrow_publish(const float (&c)[2][kColumns / 8][4], float* sums) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int a = 0; a < 2; ++a)
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        sums[(n * 8 + t * 2 + r % 2) * kNarrowPitch + a * 16 + g + r / 2 * 8] = c[a][n][r];
}

/// Adds up and finishes this block's part of a round: columns are dealt to the ranks.
template <int kColumns, typename E, typename Rows, typename Epilogue>
__device__ void narrow_finish_round(const GemvArgs<E>& args, const float* sums, int round,
                                    int first_group, int groups, const Epilogue& epilogue) {
  constexpr unsigned kMaxCluster = 8;
  const unsigned rank = cluster_rank(), size = cluster_size();
  const int lane = threadIdx.x % 32;
  for (int item = static_cast<int>(rank) * kGemvWarps + static_cast<int>(threadIdx.x / 32);
       item < kGemvWarps * args.m; item += static_cast<int>(size) * kGemvWarps) {
    const int warp = item % kGemvWarps, column = item / kGemvWarps;
    const float* mine = sums + (warp * kColumns + column) * kNarrowPitch + lane;
    float parts[kMaxCluster];
#pragma unroll
    for (unsigned r = 0; r < kMaxCluster; ++r) parts[r] = r < size ? load_of_rank(mine, r) : 0.0f;
    float sum = 0;
#pragma unroll
    for (unsigned r = 0; r < kMaxCluster; ++r) sum += parts[r];
    const float high = __shfl_down_sync(0xffffffffu, sum, 16);
    const auto share = [&](int g) {
      return static_cast<int>(std::int64_t{args.units} * g / groups);
    };
    const int unit = share(first_group + warp) + round * Rows::kUnits + lane;
    if (lane < Rows::kUnits && unit < share(first_group + warp + 1))
      epilogue(column, unit, sum, high);
  }
}

/// One stage: 32 rows x 64 elements of K against all columns.
template <int kColumns, typename E>
__device__ __forceinline__ void narrow_multiply_stage(const unsigned char* stage, const E* x,
                                                      float (&c)[2][kColumns / 8][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int step = 0; step < kGemvStageSteps; ++step) {
    uint4 w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      w[i] = *reinterpret_cast<const uint4*>(stage + gemv_swizzle(g, step) + i * 8 * 128 + t * 16);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const uint4 b =
          *reinterpret_cast<const uint4*>(x + (step * kColumns + n * 8 + g) * kGemvStep + t * 8);
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        const uint4 &w0 = w[2 * a], &w1 = w[2 * a + 1];
        const std::uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y};
        const std::uint32_t second[4] = {w0.z, w1.z, w0.w, w1.w};
        mma16816<E>(c[a][n], first, b.x, b.y);
        mma16816<E>(c[a][n], second, b.z, b.w);
      }
    }
  }
}

/// Grid: whole clusters, one block per SM. Dynamic shared memory: NarrowLayout::bytes(stages).
template <typename E, typename Rows, int kColumns, typename Epilogue>
__global__ void __launch_bounds__(kGemvThreads, kColumns <= 16 ? 2 : 1)
    gemm_narrow_kernel(const GemvArgs<E> args, const int stages, const Epilogue epilogue) {
  using Layout = NarrowLayout<kColumns>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto* sums = reinterpret_cast<float*>(shared + Layout::kRingBytes);
  E* x = reinterpret_cast<E*>(shared + Layout::kRingBytes + Layout::kSumsBytes);
  const int rank = static_cast<int>(cluster_rank()), size = static_cast<int>(cluster_size());
  const int warp = threadIdx.x / 32;
  const int groups = static_cast<int>(gridDim.x) / size * kGemvWarps;
  const int first_group = static_cast<int>(blockIdx.x) / size * kGemvWarps;
  const auto share = [&](int i) { return static_cast<int>(std::int64_t{args.units} * i / groups); };
  const int begin = share(first_group + warp), end = share(first_group + warp + 1);
  const int largest_share = (args.units + groups - 1) / groups;
  const int rounds = (largest_share + Rows::kUnits - 1) / Rows::kUnits;
  const int first_k = rank * stages * kGemvStage;

  unsigned char* ring = shared + warp * Layout::kStageBytes;
  NarrowStream<E, Rows, Layout::kDepth> stream(args, ring, begin, end, stages, first_k);
  for (int slot = 0; slot < Layout::kDepth; ++slot) stream.copy(slot);
  pdl_trigger();
  pdl_wait();
  narrow_stage_x<kColumns>(args, stages, first_k, x);

  int slot = 0;
  for (int round = 0; round < rounds; ++round) {
    float c[2][kColumns / 8][4] = {};
    for (int stage = 0; stage < stages; ++stage) {
      copies_wait<Layout::kDepth - 1>();
      __syncwarp();
      narrow_multiply_stage<kColumns>(ring + slot * kGemvWarps * Layout::kStageBytes,
                                      x + stage * kGemvStageSteps * kColumns * kGemvStep, c);
      __syncwarp();
      stream.copy(slot);
      slot = slot + 1 == Layout::kDepth ? 0 : slot + 1;
    }
    if (round > 0) cluster_wait();  // the others have read the sums of the round before
    narrow_publish<kColumns>(c, sums + warp * kColumns * kNarrowPitch);
    cluster_arrive();
    cluster_wait();
    narrow_finish_round<kColumns, E, Rows>(args, sums, round, first_group, groups, epilogue);
    cluster_arrive();
  }
  if (rounds > 0) cluster_wait();  // shared memory stays until nobody reads it
}

/// Launches for m <= kColumns; false when a slice of x does not fit or no cluster does.
template <typename Rows, int kColumns, typename E, typename Epilogue>
bool launch_narrow(Context<Cuda>& ctx, const GemvArgs<E>& args, const Epilogue& epilogue) {
  using Layout = NarrowLayout<kColumns>;
  constexpr std::size_t kHalfOfSm = 113 << 10, kMaxShared = 227 << 10;
  constexpr int kClusters[] = {4, 8};
  int cluster = kClusters[0];
  if (Layout::bytes(Layout::stages(args.k, cluster)) > kHalfOfSm) cluster = kClusters[1];
  const int stages = Layout::stages(args.k, cluster);
  const std::size_t bytes = Layout::bytes(stages);
  if (bytes > kMaxShared) return false;
  const auto kernel = gemm_narrow_kernel<E, Rows, kColumns, Epilogue>;
  const int clusters = std::min(
      ctx.num_sms() / cluster,
      max_active_clusters(reinterpret_cast<const void*>(kernel), cluster, kGemvThreads, bytes));
  if (clusters == 0) return false;
  LaunchShape shape = dependent(dim3(clusters * cluster), dim3(kGemvThreads), bytes);
  shape.cluster = cluster;
  launch(ctx, shape, kernel, args, stages, epilogue);
  return true;
}

/// Picks the number of columns for m.
template <typename Rows, typename E, typename Epilogue>
bool launch_narrow_for(Context<Cuda>& ctx, const E* x, std::int64_t x_stride, std::int64_t m,
                       const E* w, std::int64_t units, std::int64_t k, const Epilogue& epilogue) {
  const GemvArgs<E> args{
      w, x, x_stride, static_cast<int>(m), static_cast<int>(k), static_cast<int>(units), 0, true};
  if (m <= 16) return launch_narrow<Rows, 16>(ctx, args, epilogue);
  if (m <= 32) return launch_narrow<Rows, 32>(ctx, args, epilogue);
  return m <= kNarrowMaxColumns && launch_narrow<Rows, 64>(ctx, args, epilogue);
}

}  // namespace tandem::kernels
