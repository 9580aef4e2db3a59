// SPDX-License-Identifier: Apache-2.0
// The streaming matmul of decode, y = x W^T for up to 8 rows of x: bound by how fast W arrives.
//
// One block per SM takes an equal, contiguous share of W's rows (counted in single rows, so that
// all SMs end together) and walks it in tiles of 16, the A operand of mma.m16n8k16; x is the B
// operand, its 8 columns are the rows of x. The 8 warps take turns along K: a warp copies stages of
// 16 rows x 128 bytes (whole lines) into its own ring in shared memory, and what the block has
// under way is a contiguous piece of each row, which memory delivers faster than scattered lines.
// No barrier but of the warp, no conversion; ldmatrix reads both operands as mma wants them, from
// lines whose 16-byte pieces are exchanged by the row's number, so that no banks collide. What a
// warp does per stage has to stay short: its latency, eight stages of it per tile, is what bounds
// the rate once memory does not.
//
// `depth` stages are under way per warp, across tile borders, and the first of them start before
// the PDL wait, because weights depend on no kernel: a block is made when an SM's block of the
// kernel before ends, and its ring fills while the last blocks of that one end and their results
// travel.
//
// An epilogue gets complete sums and decides what they become (GemvStore is the plain one). A
// thread gets the sums of one row of x: `before_wait` may read the step's rows and constants for
// the first of them, `load` what each needs, ahead of its call; `start` and `finish` are called by
// all threads, after the wait and when the block's share, units [begin, end), is done.
#pragma once

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/gemv_input.cuh"
#include "kernels/cuda/mma.cuh"

namespace tandem::kernels {

/// Which row of W is row r of a tile of 16 that starts at `unit`.
struct GemvRows {
  static constexpr int kUnits = 16;
  __device__ static int row(int unit, int r) { return unit + r; }
};
/// 8 gate rows, then the up rows of the same columns (interleaved by 16 in memory).
struct GemvPairs {
  static constexpr int kUnits = 8;
  __device__ static int row(int unit, int r) {
    const int j = unit + r % 8;
    return j / 16 * 32 + j % 16 + r / 8 * 16;
  }
};

/// Where piece `piece` (16 bytes) of row `row` lies in a stage of 128-byte rows.
__device__ __forceinline__ int gemv_swizzle(int row, int piece) {
  return row * 128 + (piece ^ row % 8) * 16;
}

/// One warp's stream of W into its ring: (tile, stage) pairs in order.
template <typename E, typename Rows>
class GemvStream {
 public:
  /// `ring`: of this warp, [depth] stages that lie kGemvWarps stages apart.
  __device__ GemvStream(const GemvArgs<E>& args, const Rows& rows, const unsigned char* ring,
                        int begin, int end, int stages)
      : rows_of_(rows),
        first_(args.w + threadIdx.x / 32 * kGemvStage + piece() * 8),
        place_(shared_address(ring) + static_cast<std::uint32_t>(gemv_swizzle(row(), piece()))),
        k_(args.k),
        end_(end),
        stages_(stages),
        unit_(stages > 0 ? begin : end) {
    if (unit_ < end_) aim();
  }
  /// One group of copies, also past the end, so that waiting stays a count.
  __device__ __forceinline__ void copy(int slot) {
    if (unit_ < end_) {
      const std::uint32_t to = place_ + static_cast<std::uint32_t>(slot) * kGemvDepthBytes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // 4 rows on, pieces are exchanged with those 64 bytes away
        copy16_async((to ^ (i % 2 * 64u)) + i * 512u, at_[i]);
        at_[i] += kGemvWarps * kGemvStage;
      }
      if (++stage_ == stages_) {
        stage_ = 0;
        unit_ += Rows::kUnits;
        if (unit_ < end_) aim();
      }
    }
    copies_commit();
  }

 private:
  __device__ static int row() { return static_cast<int>(threadIdx.x) % 32 / 8; }
  __device__ static int piece() { return static_cast<int>(threadIdx.x) % 8; }
  /// Rows past the end of the share are its last row again: no other bytes come from memory.
  __device__ void aim() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 4 * i + row(), back = max(0, unit_ + r % Rows::kUnits - (end_ - 1));
      at_[i] = first_ + std::int64_t{rows_of_.row(unit_ - back, r)} * k_;
    }
  }

  const Rows& rows_of_;
  const E* const first_;       ///< This lane's elements of the first stage of row 0 of W.
  const std::uint32_t place_;  ///< Of this lane's piece of row 0 of slot 0.
  const int k_, end_, stages_;
  int unit_, stage_ = 0;  ///< Of the next copy.
  const E* at_[4];
};

/// Until the oldest of `depth` groups of copies has arrived. The instruction takes constants only.
template <int kDepth = kGemvMaxDepth>
__device__ __forceinline__ void gemv_wait_oldest(int depth) {
  if constexpr (kDepth > kGemvMinDepth) {
    if (depth != kDepth) return gemv_wait_oldest<kDepth - 1>(depth);
  }
  copies_wait<kDepth - 1>();
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

/// One lane's view of a warp's stages of W and of its part of x, [stage][m] lines of 128 bytes:
/// where it points ldmatrix at. All bases are multiples of 128 bytes.
class GemvLane {
 public:
  /// `zeros`: 128 bytes, for the columns of mma beyond the rows of x.
  __device__ GemvLane(const unsigned char* ring, const unsigned char* x, const unsigned char* zeros,
                      int m) {
    const int lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
    weights_ = shared_address(ring) +
               static_cast<std::uint32_t>(gemv_swizzle(row + matrix % 2 * 8, matrix / 2));
    x_ = shared_address(row < m ? x : zeros) + static_cast<std::uint32_t>((matrix ^ row) * 16);
    if (row < m) x_ += static_cast<std::uint32_t>(row * 128);
    x_step_ = row < m ? static_cast<std::uint32_t>(m) * 128u : 0u;
  }
  /// The next stage: 16 rows x 64 elements of K against the rows of x.
  template <typename E>
  __device__ __forceinline__ void multiply(int slot, float (&even)[4], float (&odd)[4]) {
    std::uint32_t w[4][4], x[2][4];
    const std::uint32_t at = weights_ + static_cast<std::uint32_t>(slot) * kGemvDepthBytes;
#pragma unroll
    for (int step = 0; step < 4; ++step) load_matrices(w[step], at ^ (step * 32u));
    load_matrices(x[0], x_);
    load_matrices(x[1], x_ ^ 64u);
    x_ += x_step_;
    mma16816<E>(even, w[0], x[0][0], x[0][1]);
    mma16816<E>(odd, w[1], x[0][2], x[0][3]);
    mma16816<E>(even, w[2], x[1][0], x[1][1]);
    mma16816<E>(odd, w[3], x[1][2], x[1][3]);
  }
  /// Back to the first stage of x.
  __device__ void rewind(int stages) { x_ -= static_cast<std::uint32_t>(stages) * x_step_; }

 private:
  std::uint32_t weights_, x_, x_step_;
};

/// Grid: one block per SM. Dynamic shared memory: gemv_shared_bytes(m, k).
template <typename E, typename Rows, typename Epilogue>
__global__ void __launch_bounds__(kGemvThreads, 1)
    gemv_kernel(const GemvArgs<E> args, const Rows rows, Epilogue epilogue) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ alignas(128) unsigned char zeros[128];
  const auto share = [&](unsigned block) {
    return static_cast<int>(std::int64_t{args.units} * block / gridDim.x);
  };
  const int begin = share(blockIdx.x), end = share(blockIdx.x + 1), warp = threadIdx.x / 32;
  const int stages_of_row = args.k / kGemvStage;
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
  if (threadIdx.x < 128) zeros[threadIdx.x] = 0;
  GemvStager<E> stager(args, stages);
  if (is_mine) epilogue.before_wait(column, first);
  __syncthreads();
  pdl_wait();

  epilogue.start();
  if (is_mine) epilogue.load(column, first);
  unsigned char* x = shared + args.depth * kGemvDepthBytes + stages_before * args.m * 128;
  auto* sums = reinterpret_cast<float*>(shared + args.depth * kGemvDepthBytes +
                                        stages_of_row * args.m * 128);
  const int sums_size = kGemvWarps * args.m * kGemvTileRows;
  stager.run(x);
  GemvLane lane(ring, x, zeros, args.m);
  int slot = 0;
  for (int unit = begin, parity = 0; unit < end; unit += Rows::kUnits, parity ^= 1) {
    float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
    for (int stage = 0; stage < stages; ++stage) {
      gemv_wait_oldest(args.depth);
      __syncwarp();
      lane.multiply<E>(slot, even, odd);
      __syncwarp();
      stream.copy(slot);
      slot = slot + 1 == args.depth ? 0 : slot + 1;
    }
    lane.rewind(stages);
#pragma unroll
    for (int r = 0; r < 4; ++r) even[r] += odd[r];
    gemv_finish_tile<Rows>(sums + parity * sums_size, even, args.m, unit, end, epilogue);
  }
  epilogue.finish(column, begin, end);
}

/// Keeps the sums: y [m, rows], after scale and softcap.
template <typename Out>
struct GemvStore {
  Out* y;
  std::int64_t y_stride;
  float scale, softcap;
  __device__ void before_wait(int, int) const {}
  __device__ void start() const {}
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
