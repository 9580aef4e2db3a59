// SPDX-License-Identifier: Apache-2.0
// The streaming matmul of decode, y = x W^T for up to 8 rows of x: bound by how fast W arrives.
//
// One block per SM takes an equal, contiguous share of W's rows (counted in single rows, so that
// all SMs end together) and walks it in tiles of 16, the A operand of mma.m16n8k16; x is the B
// operand, its 8 columns are the rows of x. The 8 warps split K. A warp copies stages of 16 rows x
// 128 bytes (whole lines: memory delivers 64-byte pieces of many rows much slower) into its own
// ring in shared memory: no barrier but of the warp, no shuffle, no conversion. A lane reads 16
// consecutive bytes of rows g and g + 8 as the operands of two mma; x is read in the same permuted
// order of K, so the sum is right. kGemvDepth stages are under way per warp, across tile borders,
// and the first of them start before the PDL wait, because weights depend on no kernel. Where x is
// small the block takes at most half of an SM, so that the next kernel is resident and loading
// before this one ends.
//
// An epilogue gets complete sums and decides what they become (GemvStore is the plain one); its
// `finish` runs when the block's share is done, with kGemvScratch floats of shared memory.
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
inline constexpr int kGemvDepth = 5;  // stages under way per warp: 80 KB per SM
inline constexpr int kGemvTileRows = 16;
inline constexpr int kGemvMaxRows = 8;                                  // of x
inline constexpr int kGemvStageBytes = kGemvTileRows * kGemvStage * 2;  // of one warp
inline constexpr int kGemvRingBytes = kGemvDepth * kGemvWarps * kGemvStageBytes;
inline constexpr int kGemvScratch = 2048;  // floats that an epilogue's `finish` may use

template <typename E>
struct GemvArgs {
  const E* w;  ///< [rows, k]
  const E* x;  ///< [m, k]
  std::int64_t x_stride;
  int m, k;
  int units;           ///< Rows, or gate and up pairs of rows, that the grid shares out.
  int prefetch_bytes;  ///< Of the block's share, into L2, before the wait.
  bool trigger_early;  ///< The next kernel may start with this one, else when loads run out.
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

/// Copies 16 bytes of weights past L1, first to leave L2: they are read once. Zeros unless `take`.
__device__ __forceinline__ void copy_weights(void* shared, const void* p, std::uint64_t policy,
                                             bool take) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                   shared_address(shared)),
               "l"(p), "r"(take ? 16 : 0), "l"(policy)
               : "memory");
}
__device__ __forceinline__ std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void prefetch_l2(const void* p, int size_bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(size_bytes) : "memory");
}

/// Where the 64 bytes of step `step` of row `row` lie in a stage of 128-byte rows: odd rows have
/// their halves exchanged, so that the two rows of a quarter-warp never share banks.
__device__ __forceinline__ int gemv_swizzle(int row, int step) {
  return row * 128 + ((step ^ row) & 1) * 64;
}

/// One warp's stream of W into its ring: (tile, stage) pairs in order.
template <typename E, typename Rows>
struct GemvStream {
  const GemvArgs<E>& args;
  unsigned char* const ring;  ///< Of this warp: [kGemvDepth] stages, kGemvWarps stages apart.
  const std::uint64_t policy;
  const int end, stages, k_lane, place;
  int unit, stage = 0;  ///< Of the next copy.
  const E* rows[4];
  bool has[4];

  __device__ GemvStream(const GemvArgs<E>& a, unsigned char* warp_ring, int begin, int end_unit,
                        int first_stage, int num_stages)
      : args(a),
        ring(warp_ring),
        policy(evict_first_policy()),
        end(end_unit),
        stages(num_stages),
        k_lane(first_stage * kGemvStage + static_cast<int>(threadIdx.x % 8) * 8),
        place(gemv_swizzle(static_cast<int>(threadIdx.x) / 8 % 4, threadIdx.x / 4 % 2) +
              static_cast<int>(threadIdx.x % 4) * 16),
        unit(num_stages > 0 ? begin : end_unit) {
    aim();
  }
  __device__ bool exhausted() const { return unit >= end; }
  __device__ void aim() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 4 * i + static_cast<int>(threadIdx.x) / 8 % 4;
      has[i] = unit + r % Rows::kUnits < end;
      rows[i] = args.w + (has[i] ? Rows::row(unit, r) * args.k : 0);
    }
  }
  /// One group of copies, also past the end, so that waiting stays a count.
  __device__ void copy(int slot) {
    if (unit < end) {
      const int k = k_lane + stage * kGemvStage;
      const bool inside = k < args.k;
      unsigned char* to = ring + slot * kGemvWarps * kGemvStageBytes + place;
#pragma unroll
      for (int i = 0; i < 4; ++i)  // 4 rows on, the swizzle is the same
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

/// Stages the warp's part of x: [step][m][32], so that a B fragment is one 16-byte load.
template <typename E>
__device__ void gemv_stage_x(const GemvArgs<E>& args, int first_stage, int stages, E* to) {
  const int pieces = stages * kGemvStageSteps * args.m * (kGemvStep / 8);
#pragma unroll 8
  for (int i = threadIdx.x % 32; i < pieces; i += 32) {
    const int piece = i % 4, row = i / 4 % args.m, step = i / 4 / args.m;
    const int k = first_stage * kGemvStage + step * kGemvStep + piece * 8;
    uint4 v = {0, 0, 0, 0};
    if (k < args.k) v = __ldcg(reinterpret_cast<const uint4*>(args.x + row * args.x_stride + k));
    *reinterpret_cast<uint4*>(to + i * 8) = v;
  }
  __syncwarp();
}

/// Starts the block's share on its way into L2.
template <typename E, typename Rows>
__device__ void gemv_prefetch(const GemvArgs<E>& args, int begin, int end) {
  constexpr int kPiece = 4096;
  if (begin >= end || args.prefetch_bytes == 0) return;
  const auto* from = reinterpret_cast<const char*>(args.w + Rows::row(begin, 0) * args.k);
  const auto* last = reinterpret_cast<const char*>(
      args.w + (Rows::row(end - 1, Rows::kUnits == 8 ? 8 : 0) + 1) * args.k);
  const std::int64_t size = min(static_cast<std::int64_t>(args.prefetch_bytes), last - from);
  for (std::int64_t at = std::int64_t{threadIdx.x} * kPiece; at < size; at += kGemvThreads * kPiece)
    prefetch_l2(from + at, static_cast<int>(min(static_cast<std::int64_t>(kPiece), size - at)));
}

/// Sums one tile over the warps and gives each to the epilogue: one barrier per tile, since the
/// buffer of a tile is not written again before the barrier of the next. `sums` [warps][m][16].
template <typename Rows, typename Epilogue>
__device__ __forceinline__ void gemv_finish_tile(float* sums, const float (&c)[4], int m, int unit,
                                                 int end, const Epilogue& epilogue) {
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
__global__ void __launch_bounds__(kGemvThreads, 2)
    gemv_kernel(const GemvArgs<E> args, const Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char shared[];
  const auto share = [&](unsigned block) {
    return static_cast<int>(std::int64_t{args.units} * block / gridDim.x);
  };
  const int begin = share(blockIdx.x), end = share(blockIdx.x + 1), warp = threadIdx.x / 32;
  const int stages_of_row = (args.k + kGemvStage - 1) / kGemvStage;
  const int first_stage = stages_of_row * warp / kGemvWarps;
  const int stages = stages_of_row * (warp + 1) / kGemvWarps - first_stage;
  unsigned char* ring = shared + warp * kGemvStageBytes;
  GemvStream<E, Rows> stream(args, ring, begin, end, first_stage, stages);
  for (int slot = 0; slot < kGemvDepth; ++slot) stream.copy(slot);
  gemv_prefetch<E, Rows>(args, begin, end);
  bool triggered = args.trigger_early;
  if (triggered) pdl_trigger();
  pdl_wait();

  auto* sums = reinterpret_cast<float*>(shared + kGemvRingBytes);
  const int sums_size = kGemvWarps * args.m * kGemvTileRows;
  E* x = reinterpret_cast<E*>(sums + 2 * sums_size) +
         first_stage * kGemvStageSteps * args.m * kGemvStep;
  gemv_stage_x(args, first_stage, stages, x);
  float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
  int slot = 0;
  for (int unit = begin, parity = 0; unit < end; unit += Rows::kUnits, parity ^= 1) {
    for (int stage = 0; stage < stages; ++stage) {
      copies_wait<kGemvDepth - 1>();
      __syncwarp();
      gemv_multiply_stage(ring + slot * kGemvWarps * kGemvStageBytes,
                          x + stage * kGemvStageSteps * args.m * kGemvStep, args.m, even, odd);
      __syncwarp();
      stream.copy(slot);
      slot = slot + 1 == kGemvDepth ? 0 : slot + 1;
    }
    if (!triggered && stream.exhausted()) {
      triggered = true;
      pdl_trigger();
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] += odd[r];
    gemv_finish_tile<Rows>(sums + parity * sums_size, even, args.m, unit, end, epilogue);
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] = odd[r] = 0;
  }
  epilogue.finish(begin, end, reinterpret_cast<float*>(shared));
}

/// Keeps the sums: y [m, rows], after scale and softcap.
template <typename Out>
struct GemvStore {
  Out* y;
  std::int64_t y_stride;
  float scale, softcap;
  __device__ void operator()(int column, int unit, float sum, float) const {
    float value = sum * scale;
    if (softcap > 0.0f) value = softcap * tanhf(value / softcap);
    y[column * y_stride + unit] = from_float<Out>(value);
  }
  __device__ void finish(int, int, float*) const {}
};

inline std::size_t gemv_shared_bytes(std::int64_t m, std::int64_t k) {
  const std::int64_t stages = (k + kGemvStage - 1) / kGemvStage;
  return static_cast<std::size_t>(kGemvRingBytes + 2 * kGemvWarps * m * kGemvTileRows * 4 +
                                  stages * kGemvStage * m * 2);
}

/// Fills the arguments and launches over all SMs.
template <typename Rows, typename E, typename Epilogue>
void launch_gemv(Context<Cuda>& ctx, const E* x, std::int64_t x_stride, std::int64_t m, const E* w,
                 std::int64_t units, std::int64_t k, const Epilogue& epilogue) {
  GemvArgs<E> args{};
  args.w = w;
  args.x = x;
  args.x_stride = x_stride;
  args.m = static_cast<int>(m);
  args.k = static_cast<int>(k);
  args.units = static_cast<int>(units);
  args.prefetch_bytes = ctx.options().gemv_prefetch_bytes;
  args.trigger_early = ctx.options().gemv_trigger_early;
  launch(ctx, dependent(dim3(ctx.num_sms()), dim3(kGemvThreads), gemv_shared_bytes(args.m, args.k)),
         gemv_kernel<E, Rows, Epilogue>, args, epilogue);
}

}  // namespace tandem::kernels
