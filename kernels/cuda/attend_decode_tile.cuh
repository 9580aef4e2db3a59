// SPDX-License-Identifier: Apache-2.0
// One warp's part of decode attention with mma: 16 keys and values in shared memory against sets of
// 8 query heads, online softmax (Dao et al. 2022, arXiv 2205.14135). Keys are the 16-row operand
// and queries the 8-column one, because a KV head has few query heads: scores and sums are
// transposed, and half of the arithmetic and registers of the other way round is left.
//
// Which element of a key is which k of mma does not matter as long as queries agree: a lane takes
// 16 consecutive bytes of its rows, so that queries come straight from global memory in few loads.
// Device code only.
#pragma once

#include "kernels/cuda/attend_tile.cuh"

namespace tandem::kernels {

inline constexpr int kDecodeTileTokens = 16;
inline constexpr int kDecodeRegisters = 26 << 10;  // of a block: what one of a matmul leaves

__device__ __forceinline__ uint4 load_shared16(std::uint32_t shared) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared)
               : "memory");
  return v;
}

/// Keeps what is computed from here on out of loops' heads, where it would fill registers, and what
/// is computed before from moving behind a wait.
__device__ __forceinline__ void hold(std::uint32_t& shared) { asm volatile("" : "+r"(shared)); }
template <typename E>
__device__ __forceinline__ void hold(const E*& global) {
  asm volatile("" : "+l"(global));
}

/// Not reordered with asynchronous copies, for which a wait may follow.
__device__ __forceinline__ uint4 load_global16(const void* global) {
  uint4 v;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global)
               : "memory");
  return v;
}

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The 8x8 matrix of the warp, two elements per lane, with rows and columns exchanged.
__device__ __forceinline__ std::uint32_t transpose_matrix(std::uint32_t pair) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

template <int kDim, int kSets>
struct DecodeShape {
  static constexpr int kQueries = 8 * kSets;
  static constexpr int kPieces = kDim / 8;                  ///< Of 16 bytes of a key.
  static constexpr int kPitch = (kDim + 63) / 64 * 64;      ///< Elements of a row in shared memory.
  static constexpr int kHalf = kDecodeTileTokens * kPitch;  ///< Elements of a tile's keys.
  static constexpr int kTileBytes = 2 * kHalf * 2;          ///< Keys, then values.
  static constexpr int kWarps = kDim * kSets > 128 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kSharedBytes = kWarps * kTileBytes;

  /// Element at which piece `piece` of row `row` lies. The pieces of a row are exchanged so that
  /// two neighbouring rows' halves of 64 bytes, and one piece of eight rows, use all banks.
  __device__ static int place(int row, int piece) {
    return row * kPitch + (piece ^ swizzle(row)) * 8;
  }
  __device__ static int swizzle(int row) { return (row & 1) << 2 | (row >> 1 & 3); }
  /// `pieces` further along the row than a piece at `at` in shared memory, whose number has none of
  /// their bits.
  __device__ static std::uint32_t along(std::uint32_t at, int pieces) {
    return (at ^ (pieces & 7) * 16u) + (pieces & ~7) * 16u;
  }
};

template <typename E, int kDim, int kSets>
struct DecodeTile {
  using Shape = DecodeShape<kDim, kSets>;
  static constexpr int kBlocks = (kDim + 31) / 32;  ///< Of a key: 16 bytes of each of 4 lanes.
  uint4 q[kSets][kBlocks];
  float scores[kSets][4];          ///< Keys g and g + 8, queries 2t and 2t + 1; then their weights.
  float out[kSets][kDim / 16][4];  ///< Dims g and g + 8, queries 2t and 2t + 1.
  float max[kSets][2], sum[kSets][2];  ///< `sum` of this lane's keys only.

  /// `queries`: of each set, piece t of query g of this pass, or null: zeros.
  __device__ void start(const E* const (&queries)[kSets]) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const E* from = queries[set];
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        q[set][j] = {0, 0, 0, 0};
        if (from != nullptr && j * 4 + t < Shape::kPieces) q[set][j] = load_global16(from + j * 32);
      }
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d)
#pragma unroll
        for (int r = 0; r < 4; ++r) out[set][d][r] = 0;
      max[set][0] = max[set][1] = -INFINITY;
      sum[set][0] = sum[set][1] = 0;
    }
  }

  /// Keys [16, kPitch] in shared memory times the queries.
  __device__ void score(std::uint32_t keys) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    std::uint32_t row = keys + 2 * Shape::place(g, t);
    hold(row);
    uint4 low[kBlocks], high[kBlocks];  // of key g and key g + 8
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      low[j] = high[j] = {0, 0, 0, 0};
      if (j * 4 + 4 <= Shape::kPieces || j * 4 + t < Shape::kPieces) {
        low[j] = load_shared16(Shape::along(row, j * 4));
        high[j] = load_shared16(Shape::along(row, j * 4) + 16 * Shape::kPitch);
      }
    }
    float even[kSets][4] = {}, odd[kSets][4] = {};
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const std::uint32_t first[4] = {low[j].x, high[j].x, low[j].y, high[j].y};
      const std::uint32_t second[4] = {low[j].z, high[j].z, low[j].w, high[j].w};
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        mma16816<E>(even[set], first, q[set][j].x, q[set][j].y);
        mma16816<E>(odd[set], second, q[set][j].z, q[set][j].w);
      }
    }
#pragma unroll
    for (int set = 0; set < kSets; ++set)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[set][r] = even[set][r] + odd[set][r];
  }

  /// Scores to weights; rescales what was summed under a smaller maximum. `first`: the tile's key.
  __device__ void weigh(int first, const KeyRange& range, const ScoreScale& score) {
    const bool sees_all = first >= range.begin && first + kDecodeTileTokens <= range.end;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      float(&s)[4] = scores[set];
      if (score.softcap > 0.0f) {
#pragma unroll
        for (int r = 0; r < 4; ++r) s[r] = score(s[r]);
      } else {
#pragma unroll
        for (int r = 0; r < 4; ++r) s[r] *= score.in_log2();
      }
      if (!sees_all) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int key = first + static_cast<int>(threadIdx.x) % 32 / 4 + r / 2 * 8;
          if (key < range.begin || key >= range.end) s[r] = -INFINITY;
        }
      }
      float rescale[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float top = fmaxf(max[set][c], fmaxf(s[c], s[c + 2]));
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lanes));
        const float base = top == -INFINITY ? 0.0f : top;  // nothing seen: weights are 0, not NaN
        rescale[c] = exp2_approximate(max[set][c] - base);
        max[set][c] = top;
        s[c] = exp2_approximate(s[c] - base);
        s[c + 2] = exp2_approximate(s[c + 2] - base);
        sum[set][c] = sum[set][c] * rescale[c] + s[c] + s[c + 2];
      }
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d)
#pragma unroll
        for (int r = 0; r < 4; ++r) out[set][d][r] *= rescale[r % 2];
    }
  }

  /// Adds values [16, kPitch] by their weights.
  __device__ void add(std::uint32_t values) {
    const int lane = threadIdx.x % 32;
    std::uint32_t row = values + 2 * Shape::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    hold(row);
    std::uint32_t weights[kSets][2];
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      weights[set][0] = transpose_matrix(pack2<E>(scores[set][0], scores[set][1]));
      weights[set][1] = transpose_matrix(pack2<E>(scores[set][2], scores[set][3]));
    }
    constexpr int kTogether = 4;  // loads under way
#pragma unroll
    for (int first = 0; first < kDim / 16; first += kTogether) {
      std::uint32_t a[kTogether][4];
#pragma unroll
      for (int d = 0; d < kTogether && first + d < kDim / 16; ++d)
        load_matrices_transposed(a[d], Shape::along(row, (first + d) * 2));
#pragma unroll
      for (int d = 0; d < kTogether && first + d < kDim / 16; ++d)
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          mma16816<E>(out[set][first + d], a[d], weights[set][0], weights[set][1]);
    }
  }

  /// Sums over the lanes that share a query; call once, after the last tile.
  __device__ void finish() {
#pragma unroll
    for (int set = 0; set < kSets; ++set)
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          sum[set][c] += __shfl_xor_sync(0xffffffffu, sum[set][c], lanes);
  }
};

}  // namespace tandem::kernels
