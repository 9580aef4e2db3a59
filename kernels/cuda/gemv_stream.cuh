// SPDX-License-Identifier: Apache-2.0
// The way of a streaming matmul's W through shared memory, by one warp: copies of whole lines into
// a ring of stages, in the order of use, and the multiplication of a stage with x by mma. Pieces of
// 16 bytes are exchanged by the row's number, so that ldmatrix reads without bank conflicts. Device
// code only.
#pragma once

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
  /// `ring`: of this warp, slots that lie kGemvWarps stages apart.
  __device__ GemvStream(const GemvArgs<E>& args, const Rows& rows, const unsigned char* ring,
                        int begin, int end, int stages)
      : rows_of_(rows),
        first_(args.w + threadIdx.x / 32 * kGemvStage + piece() * 8),
        place_(shared_address(ring) + static_cast<std::uint32_t>(gemv_swizzle(row(), piece()))),
        k_(args.k),
        end_(end),
        stages_(stages),
        left_(stages * ((end - begin + Rows::kUnits - 1) / Rows::kUnits)),
        unit_(begin) {
    if (left_ > 0) aim();
  }
  /// One group of copies, also past the end, so that waiting stays a count.
  __device__ __forceinline__ void copy(int slot) {
    if (left_ > 0) {
      const std::uint32_t to = place_ + static_cast<std::uint32_t>(slot) * kGemvDepthBytes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // 4 rows on, pieces are exchanged with those 64 bytes away
        if (4 * i % Rows::kUnits < units_below_)
          copy16_async((to ^ (i % 2 * 64u)) + i * 512u, at_[i], policy_);
        at_[i] += kGemvWarps * kGemvStage;
      }
      --left_;
      if (++stage_ == stages_) {
        stage_ = 0;
        unit_ += Rows::kUnits;
        if (left_ > 0) aim();
      }
    }
    copies_commit();
  }

 private:
  __device__ static int row(int i = 0) { return static_cast<int>(threadIdx.x) % 32 / 8 + 4 * i; }
  __device__ static int piece() { return static_cast<int>(threadIdx.x) % 8; }
  /// Rows past the end of the share stay what they are in shared memory: so do only their sums.
  __device__ __forceinline__ void aim() {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      at_[i] = first_ + std::uint64_t{static_cast<unsigned>(rows_of_.row(unit_, row(i)))} * k_;
    units_below_ = end_ - unit_ - row(0);
  }

  const Rows& rows_of_;
  const E* const first_;       ///< This lane's elements of the first stage of row 0 of W.
  const std::uint32_t place_;  ///< Of this lane's piece of row 0 of slot 0.
  const unsigned k_;
  const int end_, stages_;
  int left_;              ///< Copies that are yet to begin.
  int unit_, stage_ = 0;  ///< Of the next one.
  int units_below_;       ///< Of this lane's first row of the tile, and itself.
  const E* at_[4];
  const L2Policy policy_ = read_once();
};

/// One lane's view of a warp's stages of W and of its part of x, [stage][m] lines of 128 bytes:
/// where it points ldmatrix at. All bases are multiples of 128 bytes.
class GemvLane {
 public:
  /// Columns of mma beyond the rows of x are the last row again: nobody reads their sums.
  __device__ GemvLane(const unsigned char* ring, const unsigned char* x, int m) {
    const int lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
    weights_ = shared_address(ring) +
               static_cast<std::uint32_t>(gemv_swizzle(row + matrix % 2 * 8, matrix / 2));
    x_ = shared_address(x) + static_cast<std::uint32_t>(gemv_swizzle(min(row, m - 1), matrix));
    x_step_ = static_cast<std::uint32_t>(m) * 128u;
    gemv_settle(weights_);
    gemv_settle(x_);
  }
  /// The next kStages stages: 16 rows x 64 elements of K each, against the rows of x.
  template <typename E, int kStages>
  __device__ __forceinline__ void multiply(const int (&slots)[kStages], float (&even)[4],
                                           float (&odd)[4]) {
    std::uint32_t w[kStages][4][4], x[kStages][2][4];
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      const std::uint32_t at = weights_ + static_cast<std::uint32_t>(slots[s]) * kGemvDepthBytes;
#pragma unroll
      for (int step = 0; step < 4; ++step) load_matrices(w[s][step], at ^ (step * 32u));
      load_matrices(x[s][0], x_);
      load_matrices(x[s][1], x_ ^ 64u);
      x_ += x_step_;
    }
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      mma16816<E>(even, w[s][0], x[s][0][0], x[s][0][1]);
      mma16816<E>(odd, w[s][1], x[s][0][2], x[s][0][3]);
      mma16816<E>(even, w[s][2], x[s][1][0], x[s][1][1]);
      mma16816<E>(odd, w[s][3], x[s][1][2], x[s][1][3]);
    }
  }
  /// Back to the first stage of x.
  __device__ void rewind(int stages) { x_ -= static_cast<std::uint32_t>(stages) * x_step_; }

 private:
  std::uint32_t weights_, x_, x_step_;
};

}  // namespace tandem::kernels
