// SPDX-License-Identifier: Apache-2.0
// The matmul of decode with 2 to 64 rows of x, y = x W^T: bound, like the streaming kernel for
// fewer rows, by how fast W arrives, but x no longer fits into one SM's shared memory.
//
// W is the A operand of wgmma (64 of its rows), x the B operand (its rows are the 16, 32 or 64
// columns of the tile). A block takes an equal share of W's rows, walks K once per 128 of them, and
// keeps their sums in registers. Every block needs all of x, which is as much as its share of W
// where W has few rows: therefore the two blocks of a cluster fetch half of x each and multicast it
// to both. One thread copies W, one x; two warpgroups multiply; two warps meanwhile find the
// factors of the norm that was left to this kernel. W's first stages are copied before the PDL
// wait.
//
// A kernel's code comes from L2 or memory each time it starts, and little hides that: so loops stay
// rolled up where nothing is gained, here and in `skinny_pipe.cuh` (with that, and the copies of W
// started earlier, a step of 32 rows at TP 2 became 4 % shorter).
//
// The norm: what comes as x is residual * weight, so that its rows can be copied as they are; the
// factor 1 / rms of a row of x is applied to the sums.
//
// An epilogue gets complete sums of one row of x, eight neighbouring rows of W at a time (`low`,
// and `high` the eight that belong to them), from sums that the warpgroup exchanges in shared
// memory: whole 16-byte pieces are read and written. `before_wait` may read the step's rows, `load`
// what a result needs, before the sums are made; `finish` is called when the block's share is done.
// One that exchanges its sums with other ranks also has `start`, after the wait, and `complete`,
// for every result of a pass when all of them were given to it.
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/skinny_pipe.cuh"

namespace tandem::kernels {

inline constexpr int kSkinnyThreads = (kSkinnyGroups + 1) * 128;

// How the rows of W make boxes, what the eight rows of job j of a warpgroup are among its 64, and
// which results they are. One copy may bring several boxes if they are contiguous.

/// Plain rows: box u is rows [16 u, 16 u + 16).
struct SkinnyRows {
  static constexpr int kBoxRows = 16, kJobs = 8;
  static constexpr bool kContiguous = true, kPairs = false;
  __device__ static int low(int job) { return job * 8; }
  __device__ static int high(int) { return 0; }
  __device__ static int result(int box, int job) { return box * 16 + job % 2 * 8; }
  __device__ int3 place(int box) const { return {0, box * 2, 0}; }
};
/// Gate and up rows, interleaved by 16 in memory: box u is columns [16 u, 16 u + 16) of both.
struct SkinnyPairs {
  static constexpr int kBoxRows = 32, kJobs = 4;
  static constexpr bool kContiguous = true, kPairs = true;
  __device__ static int low(int job) { return job / 2 * 32 + job % 2 * 8; }
  __device__ static int high(int job) { return low(job) + 16; }
  __device__ static int result(int box, int job) { return box * 16 + job % 2 * 8; }
  __device__ int3 place(int box) const { return {0, box * 4, 0}; }
};
/// Eight rows of the first half of a head and their rotary partners: elements i.. and i + half...
struct SkinnyHalves {
  static constexpr int kBoxRows = 16, kJobs = 4;
  static constexpr bool kContiguous = false, kPairs = true;
  FastDivisor boxes_of_head;
  __device__ static int low(int job) { return job * 16; }
  __device__ static int high(int job) { return job * 16 + 8; }
  __device__ static int result(int box, int) { return box * 8; }
  __device__ int3 place(int box) const {
    const int head = boxes_of_head.divide(box);
    return {(box - head * boxes_of_head.by) * 8, 0, head};
  }
};

/// The factors of the rows' norms, by the two warps beside the copying ones. Rows that x lacks get
/// them of what happens to lie there, and nobody reads them.
template <int kColumns>
__device__ void skinny_factors(const SkinnyArgs& args, SkinnyShared<kColumns>& shared) {
  constexpr int kWarps = 2;
  const int warp = threadIdx.x % 128 / 32 - kWarps, lane = threadIdx.x % 32, parts = args.parts;
  if (parts > 0) barrier_wait(&shared.parts_full, 0);
#pragma unroll 1
  for (int row = warp; row < kColumns; row += 2 * kWarps) {
    const float *one = shared.parts(row, parts), *other = shared.parts(row + kWarps, parts);
    float2 sum = {0, 0};
#pragma unroll 1
    for (int at = lane; at < parts; at += 32) sum = {sum.x + one[at], sum.y + other[at]};
    sum = {warp_sum(sum.x), warp_sum(sum.y)};
    const float square = lane == 0 ? sum.x : sum.y;
    if (lane < 2)
      shared.factors[row + lane * kWarps] =
          parts > 0 ? rsqrtf(square * args.inverse_k + args.eps) : 1.0f;
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(&shared.factors_ready);
}

/// All threads of this warpgroup, or of both that multiply; barrier 0 is __syncthreads.
__device__ __forceinline__ void skinny_sync_group() { named_sync(1 + threadIdx.x / 128, 128); }
__device__ __forceinline__ void skinny_sync_groups() {
  named_sync(1 + kSkinnyGroups, kSkinnyGroups * 128);
}

/// Job i of this thread, of kJobs of the warpgroup or, where both have the same rows, of both.
template <int kColumns>
__device__ __forceinline__ int skinny_job(const SkinnyArgs& args, int i) {
  constexpr int kThreadsOfColumn = 128 / kColumns;
  const int thread = static_cast<int>(threadIdx.x) % kThreadsOfColumn;
  return args.splits_k ? thread + (i * kSkinnyGroups + threadIdx.x / 128) * kThreadsOfColumn
                       : thread + i * kThreadsOfColumn;
}

/// Calls f(i, result, job) for this thread's jobs of a pass. `box`: the first of this warpgroup.
template <int kColumns, typename Rows, typename F>
__device__ __forceinline__ void skinny_for_jobs(const SkinnyArgs& args, int box, int end,
                                                const F& f) {
  constexpr int kThreadsOfColumn = 128 / kColumns;
  const int column = static_cast<int>(threadIdx.x) % 128 / kThreadsOfColumn;
#pragma unroll
  for (int i = 0; i * kThreadsOfColumn < Rows::kJobs; ++i) {
    const int job = skinny_job<kColumns>(args, i);
    const int of = box + Rows::low(job) / Rows::kBoxRows;
    if (column < args.m && job < Rows::kJobs && of < end) f(i, Rows::result(of, job), job);
  }
}

/// Gives the sums of one pass to the epilogue. `box`: the first of this warpgroup.
template <int kColumns, typename Rows, typename Epilogue>
__device__ __forceinline__ void skinny_finish(const float (&d)[kColumns / 2],
                                              const SkinnyArgs& args,
                                              SkinnyShared<kColumns>& shared, int box, int end,
                                              Epilogue& epilogue) {
  constexpr int kThreadsOfColumn = 128 / kColumns;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int row = thread / 32 * 16 + thread % 32 / 4, t = thread % 4;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i)
    shared.sums[group][i / 4 * 8 + t * 2 + i % 2][row + i / 2 % 2 * 8] = d[i];
  if (args.splits_k)
    skinny_sync_groups();
  else
    skinny_sync_group();
  const int column = thread / kThreadsOfColumn;
  const float factor = shared.factors[column];
  const float* sums = shared.sums[args.splits_k ? 0 : group][column];
  const float* more = shared.sums[1][column];
  const auto take = [&](float(&to)[8], int first) {
    const Vec<float, 8> some = load_vec<float, 8>(sums + first);
    Vec<float, 8> others{};
    if (args.splits_k) others = load_vec<float, 8>(more + first);
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j] = (some.at[j] + others.at[j]) * factor;
  };
  skinny_for_jobs<kColumns, Rows>(args, box, end, [&](int i, int result, int job) {
    float low[8], high[8];
    take(low, Rows::low(job));
    if constexpr (Rows::kPairs) take(high, Rows::high(job));
    epilogue(i, column, result, low, high);
  });
  if constexpr (requires { &Epilogue::complete; })
    skinny_for_jobs<kColumns, Rows>(
        args, box, end, [&](int i, int result, int) { epilogue.complete(i, column, result); });
  if (!args.splits_k) skinny_sync_group();  // the next pass writes sums again
}

/// The barriers, by one thread of each of the first three warps that do not multiply, so that the
/// copies of W wait for their own only. Rolled up: see the head of this file.
template <int kColumns>
__device__ __forceinline__ void skinny_init(const SkinnyArgs& args, SkinnyShared<kColumns>& shared,
                                            int warp) {
  const std::uint32_t groups = args.splits_k ? 1 : kSkinnyGroups;  // that read a stage
  if (warp == 0) {
#pragma unroll 1
    for (int i = 0; i < args.w_depth; ++i) barrier_init(&shared.w_full[i], 1);
  } else if (warp == 1) {
#pragma unroll 1
    for (int i = 0; i < args.x_depth; ++i) {
      barrier_init(&shared.x_full[i], 1);
      barrier_init(&shared.x_empty[i], kSkinnyCluster * groups);
    }
  } else if (warp == 2) {
    barrier_init(&shared.factors_ready, 2);
    barrier_init(&shared.parts_full, 1);
#pragma unroll 1
    for (int i = 0; i < args.w_depth; ++i) barrier_init(&shared.w_empty[i], groups);
  }
  fence_barrier_init();
}

/// A multiplying warpgroup: all passes of the block's boxes [begin, end).
template <typename E, int kColumns, typename Rows, typename Epilogue>
__device__ __forceinline__ void skinny_multiply(const SkinnyArgs& args,
                                                SkinnyShared<kColumns>& shared,
                                                SkinnyConsumer<kColumns> consumer, int begin,
                                                int end, Epilogue& epilogue) {
  constexpr int kThreadsOfColumn = 128 / kColumns;
  const int group = threadIdx.x / 128, column = threadIdx.x % 128 / kThreadsOfColumn;
  if constexpr (requires { epilogue.start(); }) epilogue.start();
#pragma unroll 1
  for (int pass = 0; pass < args.passes; ++pass) {
    const int first = begin + pass * args.pass_boxes, last = min(first + args.pass_boxes, end);
    const int box = first + (args.splits_k ? 0 : group) * (kSkinnyGroupRows / Rows::kBoxRows);
    if (box >= last) {
      consumer.skip();
      continue;
    }
    skinny_for_jobs<kColumns, Rows>(
        args, box, last, [&](int i, int result, int) { epilogue.load(i, column, result); });
    float d[kColumns / 2];
    consumer.template multiply<E>(d);
    barrier_wait(&shared.factors_ready, 0);
    skinny_finish<kColumns, Rows>(d, args, shared, box, last, epilogue);
  }
  epilogue.finish(column, args, shared.sums[1][column]);
}

/// Grid: clusters of kSkinnyCluster blocks. Dynamic shared memory: the rings and SkinnyShared.
template <typename E, int kColumns, typename Rows, typename Epilogue>
__global__ void __launch_bounds__(kSkinnyThreads, 1)
    skinny_kernel(const __grid_constant__ CUtensorMap w_pass,
                  const __grid_constant__ CUtensorMap w_box, const __grid_constant__ CUtensorMap x,
                  const SkinnyArgs args, const Rows rows, Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char rings[];
  auto& shared = *reinterpret_cast<SkinnyShared<kColumns>*>(
      rings + args.w_depth * args.w_stage_bytes + args.x_depth * args.x_stage_bytes);
  const int block = static_cast<int>(blockIdx.x);
  const int begin = args.share.begin(block), end = args.share.end(block);
  const int warp = threadIdx.x / 32, copying_warp = kSkinnyGroups * 4;
  const bool leads = threadIdx.x % 32 == 0;
  const SkinnyRing w_ring = skinny_w_ring(args, rings, shared);
  const SkinnyRing x_ring = skinny_x_ring(args, rings, shared);
  SkinnyWeights<Rows> weights(w_pass, w_box, args, rows, w_ring, begin, end);
  if (warp >= copying_warp && leads) {
    if (warp == copying_warp + 1) prefetch_tensor_map(&x);
    skinny_init(args, shared, warp - copying_warp);
  }
  __syncwarp();
  cluster_arrive();  // the barriers are there; before W's copies, for which x need not wait
  if (warp == copying_warp && leads) weights.start();
  __syncwarp();
  pdl_trigger();
  const int column = static_cast<int>(threadIdx.x) % 128 / (128 / kColumns);
  if (warp < copying_warp && column < args.m) epilogue.before_wait(column);
  cluster_wait();
  pdl_wait();

  if (warp < copying_warp)
    skinny_multiply<E, kColumns, Rows>(args, shared, SkinnyConsumer<kColumns>(args, w_ring, x_ring),
                                       begin, end, epilogue);
  else if (warp == copying_warp && leads)
    weights.run();
  else if (warp == copying_warp + 1 && leads)
    skinny_copy_x(x, args, x_ring, shared);
  else if (warp >= copying_warp + 2)
    skinny_factors(args, shared);
}

}  // namespace tandem::kernels
