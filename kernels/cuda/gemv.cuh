// SPDX-License-Identifier: Apache-2.0
// The streaming matmul of decode, y = x W^T for up to 8 rows of x: bound by how fast W arrives.
//
// One block per SM takes an equal, contiguous share of W's rows (counted in single rows, so that
// all SMs end together) and walks it in tiles of 16, the A operand of mma.m16n8k16; x is the B
// operand, its 8 columns are the rows of x. The 8 warps split K. A lane copies 16 bytes of row g
// and of row g + 8 per step of 32 elements of K into its own part of a ring in shared memory, and
// reads only those back: no barrier, shuffle or conversion. x is read in the same permuted order of
// K, so the sum is right. kGemvDepth steps are under way per warp, across tile borders, and the
// first of them start before the PDL wait, because weights depend on no kernel; the rows after them
// are fetched into L2 for as long as the wait lasts. Where x is small the block takes at most half
// of an SM, so that the next kernel is resident and loading before this one ends.
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
inline constexpr int kGemvDepth = 8;  // steps in flight per warp: 64 KB per SM
inline constexpr int kGemvStep = 32;  // elements of K per step
inline constexpr int kGemvTileRows = 16;
inline constexpr int kGemvMaxRows = 8;  // of x
inline constexpr int kGemvRingBytes = kGemvDepth * kGemvThreads * 2 * 16;
inline constexpr int kGemvScratch = 2 * kGemvWarps * kGemvMaxRows * kGemvTileRows;

template <typename E>
struct GemvArgs {
  const E* w;  ///< [rows, k]
  const E* x;  ///< [m, k]
  std::int64_t x_stride;
  int m, k;
  int units;           ///< Rows, or gate and up pairs of rows, that the grid shares out.
  int prefetch_bytes;  ///< Of the block's share, into L2, before the wait.
};

/// Which row of W is lane row g of a tile that starts at `unit`, and which is row g + 8.
struct GemvRows {
  static constexpr int kUnitsPerTile = 16;
  __device__ static std::int64_t low(int unit, int g) { return unit + g; }
  __device__ static std::int64_t high(int unit, int g) { return unit + 8 + g; }
  __device__ static bool has_high(int unit, int g, int end) { return unit + 8 + g < end; }
};
/// Gate rows below, the up rows of the same columns above (interleaved by 16 in memory).
struct GemvPairs {
  static constexpr int kUnitsPerTile = 8;
  __device__ static std::int64_t low(int unit, int g) {
    const int j = unit + g;
    return j / 16 * 32 + j % 16;
  }
  __device__ static std::int64_t high(int unit, int g) { return low(unit, g) + 16; }
  __device__ static bool has_high(int unit, int g, int end) { return unit + g < end; }
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

/// One lane's part of the ring: [kGemvDepth][2] pieces of 16 bytes, strided by the block.
struct GemvRing {
  uint4* pieces;  ///< Of this thread.
  __device__ uint4& low(int slot) const { return pieces[slot * 2 * kGemvThreads]; }
  __device__ uint4& high(int slot) const { return pieces[(slot * 2 + 1) * kGemvThreads]; }
};

/// One warp's stream of W into its ring: (tile, step) pairs in order.
template <typename E, typename Rows>
struct GemvStream {
  const GemvArgs<E>& args;
  const GemvRing ring;
  const std::uint64_t policy;
  const int end, steps, g, k_lane;  ///< k_lane: this lane's first element of step 0.
  int unit, step = 0;               ///< Of the next copy.
  const E *low = nullptr, *high = nullptr;
  bool has_low = false, has_high = false;

  __device__ GemvStream(const GemvArgs<E>& a, const GemvRing& r, int begin, int end_unit,
                        int steps_per_warp)
      : args(a),
        ring(r),
        policy(evict_first_policy()),
        end(end_unit),
        steps(steps_per_warp),
        g(threadIdx.x % 32 / 4),
        k_lane(static_cast<int>(threadIdx.x / 32) * steps_per_warp * kGemvStep +
               static_cast<int>(threadIdx.x % 4) * 8),
        unit(begin) {
    aim();
  }
  __device__ void aim() {
    has_low = unit + g < end;
    has_high = Rows::has_high(unit, g, end);
    low = args.w + (has_low ? Rows::low(unit, g) * args.k : 0);
    high = args.w + (has_high ? Rows::high(unit, g) * args.k : 0);
  }
  /// One group of copies, also past the end, so that waiting stays a count.
  __device__ void copy(int slot) {
    const int k = k_lane + step * kGemvStep;
    const bool inside = k < args.k;
    if (unit < end) {
      copy_weights(&ring.low(slot), low + (inside ? k : 0), policy, has_low && inside);
      copy_weights(&ring.high(slot), high + (inside ? k : 0), policy, has_high && inside);
    }
    copies_commit();
    if (++step == steps) {
      step = 0;
      unit += Rows::kUnitsPerTile;
      aim();
    }
  }
};

/// Stages the warp's part of x: [step][m][32], so that a B fragment is one 16-byte load.
template <typename E>
__device__ void gemv_stage_x(const GemvArgs<E>& args, int steps, E* to) {
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x / 32) * steps * kGemvStep;
  const int pieces = steps * args.m * (kGemvStep / 8);
#pragma unroll 8
  for (int i = lane; i < pieces; i += 32) {
    const int piece = i % 4, row = i / 4 % args.m, step = i / 4 / args.m;
    const int k = first + step * kGemvStep + piece * 8;
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
  const auto* from = reinterpret_cast<const char*>(args.w + Rows::low(begin, 0) * args.k);
  const auto* last = reinterpret_cast<const char*>(
      args.w +
      (Rows::kUnitsPerTile == 16 ? std::int64_t{end} : Rows::high(end - 1, 0) + 1) * args.k);
  const std::int64_t size = min(static_cast<std::int64_t>(args.prefetch_bytes), last - from);
  for (std::int64_t at = std::int64_t{threadIdx.x} * kPiece; at < size; at += kGemvThreads * kPiece)
    prefetch_l2(from + at, static_cast<int>(min(static_cast<std::int64_t>(kPiece), size - at)));
}

/// Sums one tile over the warps and gives each to the epilogue: one barrier per tile, since the
/// buffer of a tile is not written again before the barrier of the next.
template <typename Rows, typename Epilogue>
__device__ __forceinline__ void gemv_finish_tile(
    float (&sums)[kGemvWarps][kGemvMaxRows][kGemvTileRows], const float (&c)[4], int m, int unit,
    int end, const Epilogue& epilogue) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int column = t * 2 + r % 2;
    if (column < m) sums[warp][column][g + r / 2 * 8] = c[r];
  }
  __syncthreads();
  constexpr int kUnits = Rows::kUnitsPerTile;
  const int u = threadIdx.x % kUnits, column = threadIdx.x / kUnits;
  if (column >= m || unit + u >= end) return;
  float low = 0, high = 0;
#pragma unroll
  for (int w = 0; w < kGemvWarps; ++w) {
    low += sums[w][column][u];
    if constexpr (kUnits == 8) high += sums[w][column][u + 8];
  }
  epilogue(column, unit + u, low, high);
}

/// Grid: one block per SM. Dynamic shared memory: gemv_shared_bytes(m, k).
template <typename E, typename Rows, typename Epilogue>
__global__ void __launch_bounds__(kGemvThreads, 2)
    gemv_kernel(const GemvArgs<E> args, const Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float sums[2][kGemvWarps][kGemvMaxRows][kGemvTileRows];
  const auto share = [&](unsigned block) {
    return static_cast<int>(std::int64_t{args.units} * block / gridDim.x);
  };
  const int begin = share(blockIdx.x), end = share(blockIdx.x + 1);
  const int steps = (args.k + kGemvWarps * kGemvStep - 1) / (kGemvWarps * kGemvStep);
  const GemvRing ring{reinterpret_cast<uint4*>(shared) + threadIdx.x};
  GemvStream<E, Rows> stream(args, ring, begin, end, steps);
  for (int slot = 0; slot < kGemvDepth; ++slot) stream.copy(slot);
  gemv_prefetch<E, Rows>(args, begin, end);
  pdl_trigger();
  pdl_wait();

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  E* x = reinterpret_cast<E*>(shared + kGemvRingBytes) + warp * steps * args.m * kGemvStep;
  gemv_stage_x(args, steps, x);
  const E* fragment = x + g * kGemvStep + t * 8;
  float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
  int slot = 0;
  for (int unit = begin, parity = 0; unit < end; unit += Rows::kUnitsPerTile, parity ^= 1) {
    for (int step = 0; step < steps; ++step) {
      uint4 b = {0, 0, 0, 0};
      if (g < args.m) b = *reinterpret_cast<const uint4*>(fragment + step * args.m * kGemvStep);
      copies_wait<kGemvDepth - 1>();
      const uint4 w0 = ring.low(slot), w1 = ring.high(slot);
      const std::uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y};
      const std::uint32_t second[4] = {w0.z, w1.z, w0.w, w1.w};
      mma16816<E>(even, first, b.x, b.y);
      mma16816<E>(odd, second, b.z, b.w);
      stream.copy(slot);
      slot = slot + 1 == kGemvDepth ? 0 : slot + 1;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] += odd[r];
    gemv_finish_tile<Rows>(sums[parity], even, args.m, unit, end, epilogue);
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] = odd[r] = 0;
  }
  epilogue.finish(begin, end, &sums[0][0][0][0]);
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

inline std::size_t gemv_shared_bytes(int m, int k) {
  const int steps = (k + kGemvWarps * kGemvStep - 1) / (kGemvWarps * kGemvStep);
  return kGemvRingBytes + std::size_t{2} * kGemvWarps * steps * kGemvStep * m;
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
  launch(ctx, dependent(dim3(ctx.num_sms()), dim3(kGemvThreads), gemv_shared_bytes(args.m, args.k)),
         gemv_kernel<E, Rows, Epilogue>, args, epilogue);
}

}  // namespace tandem::kernels
