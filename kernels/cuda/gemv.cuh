// SPDX-License-Identifier: Apache-2.0
// The streaming matmul of decode, y = x W^T for up to 8 rows of x: bound by how fast W arrives.
//
// One block per SM takes an equal, contiguous share of W's rows (counted in single rows, so that
// all SMs end together) and walks it in tiles of 16, the A operand of mma.m16n8k16; x is the B
// operand, its 8 columns are the rows of x. The 8 warps take turns along K: a warp copies stages of
// 16 rows x 128 bytes (whole lines) into its own ring in shared memory, and what the block has
// under way is a contiguous piece of each row, which memory delivers faster than scattered lines.
// No barrier but of the warp, no conversion; ldmatrix reads both operands as mma wants them. What a
// warp does per stage has to stay short: its latency is what bounds the rate once memory does not.
// So the ring's depth is a constant of the kernel, two stages are taken at once, and rows that a
// share does not have are not copied.
//
// `kDepth` stages are under way per warp, across tile borders, and the first of them start before
// the PDL wait, because weights depend on no kernel: a block is made when an SM's block of the
// kernel before ends, and its ring fills while the last blocks of that one end and their results
// travel. From the wait on every instruction counts, five times a layer: addresses, constants and
// the places of results are settled before it, x comes in copies that are all under way together,
// and the factor of a norm that was left to this kernel is applied to the results.
//
// An epilogue gets complete sums and decides what they become (GemvStore is the plain one);
// `kNorms` says whether a norm may have been left to it, `kLate` how many of a ring's stages wait
// until x is under way, which would queue behind them: that pays where blocks start shortly before
// the wait. A thread gets the sums of one row of x, a tile further with each: `before_wait` may
// read the step's rows and constants for the first of them, `load_first` is called after the wait
// and `load` before each of the others; `start` and `finish` are called by all threads, after the
// wait and when the block's share, units [begin, end), is done.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/gemv_stream.cuh"

namespace tandem::kernels {

/// Sums one tile over the warps and gives each to the epilogue: one barrier per tile, since the
/// buffer of a tile is not written again before the barrier of the next. `sums` [warps][m][16].
template <typename Rows, typename Epilogue>
__device__ __forceinline__ void gemv_finish_tile(float* sums, const float (&c)[4], int m, int unit,
                                                 int end, float factor, Epilogue& epilogue) {
  const unsigned warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float* to = sums + (warp * m + t * 2) * kGemvTileRows + g;
#pragma unroll
  for (int column = 0; column < 2; ++column)
    if (t * 2 + column < static_cast<unsigned>(m)) {
      to[column * kGemvTileRows] = c[column];
      to[column * kGemvTileRows + 8] = c[column + 2];
    }
  __syncthreads();
  constexpr unsigned kUnits = Rows::kUnits;
  const int u = threadIdx.x % kUnits, column = threadIdx.x / kUnits;
  if (column >= m || unit + u >= end) return;
  const float* from = sums + column * kGemvTileRows + u;
  float low = 0, high = 0;
#pragma unroll
  for (int w = 0; w < kGemvWarps; ++w, from += m * kGemvTileRows) {
    low += from[0];
    if constexpr (kUnits == 8) high += from[8];
  }
  epilogue(column, unit + u, low * factor, high * factor);
  if (unit + static_cast<int>(kUnits) + u < end) epilogue.load(column, unit + kUnits + u);
}

/// Grid: one block per SM. Dynamic shared memory: gemv_shared_bytes(m, k, kDepth) or more.
template <typename E, typename Rows, typename Epilogue, int kDepth>
__global__ void __launch_bounds__(kGemvThreads, 1)
    gemv_kernel(const GemvArgs<E> args, const Rows rows, Epilogue epilogue) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ std::uint64_t arrived[kGemvWarps];
  constexpr int kUnits = Rows::kUnits;
  const int block = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32;
  const int begin = args.share.begin(block), end = args.share.end(block);
  const int stages_of_row = args.k / kGemvStage;
  const int stages = (stages_of_row + kGemvWarps - 1 - warp) / kGemvWarps;
  unsigned char* ring = shared + warp * kGemvStageBytes;
  GemvStream<E, Rows> stream(args, rows, ring, begin, end, stages);
  constexpr int kEarly = kDepth >= 6 ? kDepth - Epilogue::kLate : kDepth;
#pragma unroll 1
  for (int slot = 0; slot < kEarly; ++slot) stream.copy(slot);
  pdl_trigger();
  const int stages_before =
      stages_of_row / kGemvWarps * warp + min(warp, stages_of_row % kGemvWarps);
  unsigned char* x = shared + kDepth * kGemvDepthBytes + stages_before * args.m * 128;
  auto* sums =
      reinterpret_cast<float*>(shared + kDepth * kGemvDepthBytes + stages_of_row * args.m * 128);
  const int sums_size = kGemvWarps * args.m * kGemvTileRows;
  const int column = static_cast<int>(threadIdx.x) / kUnits;
  const int first = begin + static_cast<int>(threadIdx.x) % kUnits;
  const bool is_mine = column < args.m && first < end;
  constexpr bool kNorms = Epilogue::kNorms, kScalesResults = kGemvScalesResults<E>;
  constexpr int kColumns = 32 / kUnits;  // that a warp makes results of
  GemvFactors<E> factors(args, kScalesResults ? warp * kColumns : 0,
                         kScalesResults ? kColumns : args.m);
  GemvStager<E, kNorms && !kScalesResults> stager(args, stages, x, arrived + warp);
  GemvLane lane(ring, x, args.m);
  if (is_mine) epilogue.before_wait(column, first);
  pdl_wait();

  stager.start();
  if constexpr (kEarly < kDepth) {
#pragma unroll 1
    for (int slot = kEarly; slot < kDepth; ++slot) stream.copy(slot);
  }
  if (kNorms) factors.load_first();
  epilogue.start();
  if (is_mine) epilogue.load_first(column, first);
  stager.finish(kNorms && !kScalesResults ? factors.finish() : 1.0f);
  float factor = 1.0f;
  int slot = 0;
  const auto take = [&](auto count, float(&even)[4], float(&odd)[4]) {
    constexpr int kStages = decltype(count)::value;
    int slots[kStages];
#pragma unroll
    for (int& s : slots) {
      s = slot;
      slot = slot + 1 == kDepth ? 0 : slot + 1;
    }
    copies_wait<kDepth - kStages>();
    __syncwarp();
    lane.multiply<E, kStages>(slots, even, odd);
    __syncwarp();
#pragma unroll
    for (const int s : slots) stream.copy(s);
  };
  for (int unit = begin, parity = 0; unit < end; unit += kUnits, parity ^= 1) {
    float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int stage = stages; stage > 1; stage -= 2)
      take(std::integral_constant<int, 2>{}, even, odd);
    if (stages % 2 == 1) take(std::integral_constant<int, 1>{}, even, odd);
    lane.rewind(stages);
    if (kNorms && kScalesResults && unit == begin)
      factor = __shfl_sync(0xffffffffu, factors.finish(), threadIdx.x % 32 / kUnits);
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] += odd[r];
    gemv_finish_tile<Rows>(sums + parity * sums_size, even, args.m, unit, end, factor, epilogue);
  }
  epilogue.finish(column, begin, end);
}

/// Keeps the sums: y [m, rows], after scale and softcap.
template <typename Out>
struct GemvStore {
  Out* y;
  std::int64_t y_stride;
  float scale, softcap;
  static constexpr bool kNorms = false;
  static constexpr int kLate = 0;
  __device__ void before_wait(int, int) const {}
  __device__ void start() const {}
  __device__ void load_first(int, int) const {}
  __device__ void load(int, int) const {}
  __device__ void operator()(int column, int unit, float sum, float) const {
    keep(column, unit, sum);
  }
  /// Returns it.
  __device__ float keep(int column, int unit, float sum) const {
    float value = sum * scale;
    if (softcap > 0.0f) value = softcap * tanhf(value / softcap);
    y[column * y_stride + unit] = from_float<Out>(value);
    return value;
  }
  __device__ void finish(int, int, int) const {}
};

inline std::size_t gemv_shared_bytes(std::int64_t m, std::int64_t k, int depth) {
  const std::int64_t stages = (k + kGemvStage - 1) / kGemvStage;
  return static_cast<std::size_t>(depth * kGemvDepthBytes + 2 * kGemvWarps * m * kGemvTileRows * 4 +
                                  stages * kGemvStage * m * 2);
}

/// Of x [m, k]; where `deferred` holds a norm without its weight, x is what it is of.
template <typename T>
GemvArgs<cuda_t<T>> gemv_args(const TensorView<const T, Cuda>& x, const T* w,
                              const DeferredNorm<T, Cuda>* deferred) {
  GemvArgs<cuda_t<T>> args{};
  args.w = to_cuda(w);
  args.x = to_cuda(x.data);
  args.x_stride = x.stride;
  args.m = static_cast<int>(x.rows);
  args.k = static_cast<int>(x.cols);
  args.inverse_k = 1.0f / static_cast<float>(x.cols);
  if (deferred == nullptr || deferred->parts == 0) return args;
  TANDEM_ASSERT(deferred->weighted || !kGemvScalesResults<cuda_t<T>>,
                "the rows lack the weight of their norm");
  if (!deferred->weighted) {
    args.x = to_cuda(deferred->residual.data);
    args.x_stride = deferred->residual.stride;
    args.norm_weight = deferred->norm.weight;
  }
  args.eps = deferred->norm.eps;
  args.square_sums = deferred->square_sums;
  args.parts = deferred->parts;
  return args;
}

/// Launches over all SMs, which share out `units` rows, or pairs of rows. The ring is as deep as
/// leaves room for a block of decode attention beside this one. A block never leaves room for
/// another one like it: the next kernel's blocks would crowd where this one's end first, and be
/// uneven for the rest of the step.
template <typename Rows, typename E, typename Epilogue>
void launch_gemv(Context<Cuda>& ctx, GemvArgs<E> args, std::int64_t units, const Epilogue& epilogue,
                 const Rows& rows = {}) {
  constexpr std::size_t kBesideAttention = 152 << 10, kMoreThanHalf = 116 << 10;
  args.share = BlockShare(static_cast<int>(units), ctx.num_sms());
  const auto try_depth = [&](auto depth) {
    constexpr int kDepth = decltype(depth)::value;
    const std::size_t bytes = gemv_shared_bytes(args.m, args.k, kDepth);
    if (kDepth > kGemvMinDepth && bytes > kBesideAttention) return false;
    launch(ctx, dependent(dim3(ctx.num_sms()), dim3(kGemvThreads), std::max(bytes, kMoreThanHalf)),
           gemv_kernel<E, Rows, Epilogue, kDepth>, args, rows, epilogue);
    return true;
  };
  try_depth(std::integral_constant<int, 8>{}) || try_depth(std::integral_constant<int, 6>{}) ||
      try_depth(std::integral_constant<int, 4>{}) ||
      try_depth(std::integral_constant<int, kGemvMinDepth>{});
}

}  // namespace tandem::kernels
