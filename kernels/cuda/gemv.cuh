// SPDX-License-Identifier: Apache-2.0
// The streaming matmul of decode, y = x W^T for up to 8 rows of x: bound by how fast W arrives.
//
// One block per SM takes an equal, contiguous share of W's rows (counted in single rows, so that
// all SMs end together) and walks it in tiles of 16, the A operand of mma.m16n8k16; x is the B
// operand, its 8 columns are the rows of x. The 8 warps take turns along K: a warp copies stages of
// 16 rows x 128 bytes (whole lines) into its own ring in shared memory, and what the block has
// under way is a contiguous piece of each row, which memory delivers faster than scattered lines.
// No barrier but of the warp, no shuffle, no conversion. A lane reads 16 consecutive bytes of rows
// g and g + 8 as the operands of two mma; x is read in the same permuted order of K, so the sum is
// right. `depth` stages are under way per warp, across tile borders, and the first of them start
// before the PDL wait, because weights depend on no kernel: a block is made when an SM's block of
// the kernel before ends, and its ring fills while the last blocks of that one end and their
// results travel.
//
// An epilogue gets complete sums and decides what they become (GemvStore is the plain one). A
// thread gets the sums of one row of x: `before_wait` may read the step's rows and constants for
// the first of them, `load` what each needs, ahead of its call; `finish` is called when the block's
// share is done.
#pragma once

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = kGemvWarps * 32;
inline constexpr int kGemvStep = 32;       // elements of K of two mma
inline constexpr int kGemvStageSteps = 2;  // 128 bytes of each row
inline constexpr int kGemvStage = kGemvStep * kGemvStageSteps;
inline constexpr int kGemvMinDepth = 3;
inline constexpr int kGemvMaxDepth = 8;  // stages under way per warp: 128 KB per SM
inline constexpr std::size_t kGemvMaxShared = 224 << 10;
inline constexpr int kGemvTileRows = 16;
inline constexpr int kGemvMaxRows = Context<Cuda>::kSquareSumRows;      // of x
inline constexpr int kGemvStageBytes = kGemvTileRows * kGemvStage * 2;  // of one warp
inline constexpr int kGemvDepthBytes = kGemvWarps * kGemvStageBytes;

template <typename E>
struct GemvArgs {
  const E* w;  ///< [rows, k]
  const E* x;  ///< [m, k]; the residual where the norm was left to this kernel
  std::int64_t x_stride;
  int m, k;
  int depth;                 ///< Stages under way per warp.
  int units;                 ///< Rows, or pairs of rows, that the grid shares out.
  const float* norm_weight;  ///< Of the norm to apply to x, or null.
  const float* square_sums;  ///< [m, parts] of x
  int parts;
  float eps;
};

/// Which row of W is row r of a tile of 16 that starts at `unit`.
struct GemvRows {
  static constexpr int kUnits = 16;
  __device__ static std::int64_t row(int unit, int r) { return unit + r; }
};
/// 8 gate rows, then the up rows of the same columns (interleaved by 16 in memory).
struct GemvPairs {
  static constexpr int kUnits = 8;
  __device__ static std::int64_t row(int unit, int r) {
    const int j = unit + r % 8;
    return j / 16 * 32 + j % 16 + r / 8 * 16;
  }
};

/// Where the 64 bytes of step `step` of row `row` lie in a stage of 128-byte rows: odd rows have
/// their halves exchanged, so that the two rows of a quarter-warp never share banks.
__device__ __forceinline__ int gemv_swizzle(int row, int step) {
  return row * 128 + ((step ^ row) & 1) * 64;
}

/// One warp's stream of W into its ring: (tile, stage) pairs in order.
template <typename E, typename Rows>
struct GemvStream {
  const GemvArgs<E>& args;
  const Rows& rows_of;
  unsigned char* const ring;  ///< Of this warp: [depth] stages, kGemvWarps stages apart.
  const int end, stages, k_lane, place;
  int unit, stage = 0;  ///< Of the next copy.
  const E* rows[4];
  bool has[4];

  __device__ GemvStream(const GemvArgs<E>& a, const Rows& which, unsigned char* warp_ring,
                        int begin, int end_unit, int num_stages)
      : args(a),
        rows_of(which),
        ring(warp_ring),
        end(end_unit),
        stages(num_stages),
        k_lane(static_cast<int>(threadIdx.x / 32) * kGemvStage +
               static_cast<int>(threadIdx.x % 8) * 8),
        place(gemv_swizzle(static_cast<int>(threadIdx.x) / 8 % 4, threadIdx.x / 4 % 2) +
              static_cast<int>(threadIdx.x % 4) * 16),
        unit(num_stages > 0 ? begin : end_unit) {
    aim();
  }
  __device__ void aim() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 4 * i + static_cast<int>(threadIdx.x) / 8 % 4;
      has[i] = unit + r % Rows::kUnits < end;
      rows[i] = args.w + (has[i] ? rows_of.row(unit, r) * args.k : 0);
    }
  }
  /// One group of copies, also past the end, so that waiting stays a count.
  __device__ void copy(int slot) {
    if (unit < end) {
      const int k = k_lane + stage * kGemvWarps * kGemvStage;
      const bool inside = k < args.k;
      unsigned char* to = ring + slot * kGemvWarps * kGemvStageBytes + place;
#pragma unroll
      for (int i = 0; i < 4; ++i)  // 4 rows on, the swizzle is the same
        copy16_async(to + i * 512, rows[i] + (inside ? k : 0), has[i] && inside);
      if (++stage == stages) {
        stage = 0;
        unit += Rows::kUnits;
        aim();
      }
    }
    copies_commit();
  }
};

/// Until the oldest of `depth` groups of copies has arrived. The instruction takes constants only.
template <int kDepth = kGemvMaxDepth>
__device__ __forceinline__ void gemv_wait_oldest(int depth) {
  if constexpr (kDepth > kGemvMinDepth) {
    if (depth != kDepth) return gemv_wait_oldest<kDepth - 1>(depth);
  }
  copies_wait<kDepth - 1>();
}

/// Lane r of the warp gets the factor of row r's norm.
template <typename E>
__device__ float gemv_norm_factor(const GemvArgs<E>& args) {
  const int lane = threadIdx.x % 32;
  float sums[kGemvMaxRows] = {};
  for (int part = lane; part < args.parts; part += 32)
#pragma unroll
    for (int row = 0; row < kGemvMaxRows; ++row)
      if (row < args.m) sums[row] += __ldcg(args.square_sums + row * args.parts + part);
  float factor = 0;
#pragma unroll
  for (int row = 0; row < kGemvMaxRows; ++row) {
    if (row >= args.m) break;
    const float sum = warp_sum(sums[row]);
    if (lane == row) factor = rsqrtf(sum / args.k + args.eps);
  }
  return factor;
}

/// Stages the warp's part of x, normed where that was left to this kernel: [step][m][32], so that
/// a B fragment is one 16-byte load.
template <typename E>
__device__ void gemv_stage_x(const GemvArgs<E>& args, int stages, E* to) {
  constexpr int kBatch = 4;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int pieces = stages * kGemvStageSteps * args.m * (kGemvStep / 8);
  const bool norms = args.norm_weight != nullptr;
  float factors = 0;
  for (int base = 0; base < pieces; base += 32 * kBatch) {
    Vec<E, 8> v[kBatch];
    Vec<float, 8> weights[kBatch] = {};  // past the end: 0 times anything but NaN
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = base + b * 32 + lane, row = i / 4 % args.m, step = i / 4 / args.m;
      const int k = (step / kGemvStageSteps * kGemvWarps + warp) * kGemvStage +
                    step % kGemvStageSteps * kGemvStep + i % 4 * 8;
      const bool inside = i < pieces && k < args.k;
      uint4 bits = {0, 0, 0, 0};
      if (inside) bits = __ldcg(reinterpret_cast<const uint4*>(args.x + row * args.x_stride + k));
      v[b] = *reinterpret_cast<const Vec<E, 8>*>(&bits);
      if (norms && inside) weights[b] = load_vec<float, 8>(args.norm_weight + k);
    }
    if (norms && base == 0) factors = gemv_norm_factor(args);  // while x is on its way
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = base + b * 32 + lane;
      if (norms) {
        const float factor = __shfl_sync(0xffffffffu, factors, i / 4 % args.m);
#pragma unroll
        for (int j = 0; j < 8; ++j)
          v[b].at[j] = from_float<E>(to_float(v[b].at[j]) * factor * weights[b].at[j]);
      }
      if (i < pieces) store_vec(to + i * 8, v[b]);
    }
  }
  __syncwarp();
}

/// Sums one tile over the warps and gives each to the epilogue: one barrier per tile, since the
/// buffer of a tile is not written again before the barrier of the next. `sums` [warps][m][16].
template <typename Rows, typename Epilogue>
__device__ __forceinline__ void gemv_finish_tile(float* sums, const float (&c)[4], int m, int unit,
                                                 int end, Epilogue& epilogue) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int column = t * 2 + r % 2;
    if (column < m) sums[(warp * m + column) * kGemvTileRows + g + r / 2 * 8] = c[r];
  }
  __syncthreads();
  constexpr int kUnits = Rows::kUnits;
  const int u = threadIdx.x % kUnits, column = threadIdx.x / kUnits;
  if (column >= m || unit + u >= end) return;
  float low = 0, high = 0;
#pragma unroll
  for (int w = 0; w < kGemvWarps; ++w) {
    const float* row = sums + (w * m + column) * kGemvTileRows + u;
    low += row[0];
    if constexpr (kUnits == 8) high += row[8];
  }
  epilogue(column, unit + u, low, high);
  if (unit + kUnits + u < end) epilogue.load(column, unit + kUnits + u);
}

/// One stage: 16 rows x 64 elements of K against the rows of x.
template <typename E>
__device__ __forceinline__ void gemv_multiply_stage(const unsigned char* stage, const E* x, int m,
                                                    float (&even)[4], float (&odd)[4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int step = 0; step < kGemvStageSteps; ++step) {
    const unsigned char* low = stage + gemv_swizzle(g, step) + t * 16;
    const uint4 w0 = *reinterpret_cast<const uint4*>(low);
    const uint4 w1 = *reinterpret_cast<const uint4*>(low + 8 * 128);
    uint4 b = {0, 0, 0, 0};
    if (g < m) b = *reinterpret_cast<const uint4*>(x + (step * m + g) * kGemvStep + t * 8);
    const std::uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y};
    const std::uint32_t second[4] = {w0.z, w1.z, w0.w, w1.w};
    mma16816<E>(even, first, b.x, b.y);
    mma16816<E>(odd, second, b.z, b.w);
  }
}

/// Grid: one block per SM. Dynamic shared memory: gemv_shared_bytes(m, k).
template <typename E, typename Rows, typename Epilogue>
__global__ void __launch_bounds__(kGemvThreads, 1)
    gemv_kernel(const GemvArgs<E> args, const Rows rows, Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char shared[];
  const auto share = [&](unsigned block) {
    return static_cast<int>(std::int64_t{args.units} * block / gridDim.x);
  };
  const int begin = share(blockIdx.x), end = share(blockIdx.x + 1), warp = threadIdx.x / 32;
  const int stages_of_row = (args.k + kGemvStage - 1) / kGemvStage;
  const int stages = (stages_of_row + kGemvWarps - 1 - warp) / kGemvWarps;
  const int stages_before =
      stages_of_row / kGemvWarps * warp + min(warp, stages_of_row % kGemvWarps);
  unsigned char* ring = shared + warp * kGemvStageBytes;
  GemvStream<E, Rows> stream(args, rows, ring, begin, end, stages);
  for (int slot = 0; slot < args.depth; ++slot) stream.copy(slot);
  pdl_trigger();
  const int column = static_cast<int>(threadIdx.x) / Rows::kUnits;
  const int first = begin + static_cast<int>(threadIdx.x) % Rows::kUnits;
  const bool is_mine = column < args.m && first < end;
  if (is_mine) epilogue.before_wait(column, first);
  pdl_wait();

  if (is_mine) epilogue.load(column, first);
  auto* sums = reinterpret_cast<float*>(shared + args.depth * kGemvDepthBytes);
  const int sums_size = kGemvWarps * args.m * kGemvTileRows;
  E* x = reinterpret_cast<E*>(sums + 2 * sums_size) +
         stages_before * kGemvStageSteps * args.m * kGemvStep;
  gemv_stage_x(args, stages, x);
  float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
  int slot = 0;
  for (int unit = begin, parity = 0; unit < end; unit += Rows::kUnits, parity ^= 1) {
    for (int stage = 0; stage < stages; ++stage) {
      gemv_wait_oldest(args.depth);
      __syncwarp();
      gemv_multiply_stage(ring + slot * kGemvWarps * kGemvStageBytes,
                          x + stage * kGemvStageSteps * args.m * kGemvStep, args.m, even, odd);
      __syncwarp();
      stream.copy(slot);
      slot = slot + 1 == args.depth ? 0 : slot + 1;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] += odd[r];
    gemv_finish_tile<Rows>(sums + parity * sums_size, even, args.m, unit, end, epilogue);
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] = odd[r] = 0;
  }
  epilogue.finish(column);
}

/// Keeps the sums: y [m, rows], after scale and softcap.
template <typename Out>
struct GemvStore {
  Out* y;
  std::int64_t y_stride;
  float scale, softcap;
  __device__ void before_wait(int, int) const {}
  __device__ void load(int, int) const {}
  __device__ void operator()(int column, int unit, float sum, float) const {
    float value = sum * scale;
    if (softcap > 0.0f) value = softcap * tanhf(value / softcap);
    y[column * y_stride + unit] = from_float<Out>(value);
  }
  __device__ void finish(int) const {}
};

inline std::size_t gemv_shared_bytes(std::int64_t m, std::int64_t k, int depth) {
  const std::int64_t stages = (k + kGemvStage - 1) / kGemvStage;
  return static_cast<std::size_t>(depth * kGemvDepthBytes + 2 * kGemvWarps * m * kGemvTileRows * 4 +
                                  stages * kGemvStage * m * 2);
}
/// As deep as leaves room for a block of decode attention beside this one. Always so deep that an
/// SM does not hold two: were there room, the next kernel's blocks would crowd where this one's end
/// first, and be uneven for the rest of the step.
inline int gemv_depth(std::int64_t m, std::int64_t k) {
  constexpr std::size_t kBesideAttention = 152 << 10;
  int depth = kGemvMaxDepth;
  while (depth > kGemvMinDepth && gemv_shared_bytes(m, k, depth) > kBesideAttention) --depth;
  return depth;
}

/// Of x [m, k]; where `deferred` holds a norm, x is what it is of.
template <typename T>
GemvArgs<cuda_t<T>> gemv_args(const TensorView<const T, Cuda>& x, const T* w, std::int64_t units,
                              const DeferredNorm<T, Cuda>* deferred) {
  GemvArgs<cuda_t<T>> args{};
  args.w = to_cuda(w);
  args.x = to_cuda(x.data);
  args.x_stride = x.stride;
  args.m = static_cast<int>(x.rows);
  args.k = static_cast<int>(x.cols);
  args.units = static_cast<int>(units);
  if (deferred == nullptr || deferred->parts == 0) return args;
  args.x = to_cuda(deferred->residual.data);
  args.x_stride = deferred->residual.stride;
  args.norm_weight = deferred->norm.weight;
  args.eps = deferred->norm.eps;
  args.square_sums = deferred->square_sums;
  args.parts = deferred->parts;
  return args;
}

/// Launches over all SMs.
template <typename Rows, typename E, typename Epilogue>
void launch_gemv(Context<Cuda>& ctx, GemvArgs<E> args, const Epilogue& epilogue,
                 const Rows& rows = {}) {
  args.depth = gemv_depth(args.m, args.k);
  launch(ctx,
         dependent(dim3(ctx.num_sms()), dim3(kGemvThreads),
                   gemv_shared_bytes(args.m, args.k, args.depth)),
         gemv_kernel<E, Rows, Epilogue>, args, rows, epilogue);
}

}  // namespace tandem::kernels
