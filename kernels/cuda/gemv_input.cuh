// SPDX-License-Identifier: Apache-2.0
// What a streaming matmul is given, and how its x comes to shared memory, with the norm that was
// left to it. Device code, but for the constants.
#pragma once

#include "kernels/cuda/block_share.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/tma.cuh"

namespace tandem::kernels {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = kGemvWarps * 32;
inline constexpr int kGemvStage = 64;    // elements of K: a line of 128 bytes of each row
inline constexpr int kGemvMinDepth = 3;  // stages under way per warp
inline constexpr std::size_t kGemvMaxShared = 224 << 10;
inline constexpr int kGemvTileRows = 16;
inline constexpr int kGemvStageBytes = kGemvTileRows * kGemvStage * 2;  // of one warp
inline constexpr int kGemvDepthBytes = kGemvWarps * kGemvStageBytes;

template <typename E>
struct GemvArgs {
  const E* w;  ///< [rows, k]
  const E* x;  ///< [m, k]; the residual where a norm was left to this kernel with its weight
  std::int64_t x_stride;
  int m, k;
  BlockShare share;          ///< Of W: in rows, or pairs of rows.
  const float* norm_weight;  ///< Of the norm to apply to x (half precision), or null.
  const float* square_sums;  ///< [m, parts] of the residual's rows
  int parts;                 ///< 0: no factor.
  float inverse_k, eps;
};

/// Whether the factor of a row's norm is applied to its results, so that nothing has to wait for
/// it, and the op before has multiplied by the norm's weights already; or both are applied to x:
/// the residual times the weights alone can exceed what fp16 holds.
template <typename E>
inline constexpr bool kGemvScalesResults = __is_same(E, __nv_bfloat16);

/// What is computed before is not put off until after the PDL wait, where latency is all that
/// counts.
template <typename V>
__device__ __forceinline__ void gemv_settle(V& value) {
  if constexpr (sizeof(V) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
}

/// The factors of the norms of some rows of x, by a warp.
template <typename E>
class GemvFactors {
 public:
  /// Before the PDL wait. None where no norm was left to this kernel.
  __device__ GemvFactors(const GemvArgs<E>& args, int first, int rows)
      : args_(args),
        rows_(args.parts == 0 ? 0 : min(rows, args.m - first)),
        from_(args.square_sums + first * args.parts + threadIdx.x % 32) {
    gemv_settle(from_);
  }
  /// After it: has what the first row's takes on its way.
  __device__ __forceinline__ void load_first() {
    if (rows_ > 0) load(0);
  }
  /// Lane i gets that of the i-th of the rows, other lanes 1.
  __device__ __forceinline__ float finish() {
    const int lane = threadIdx.x % 32;
    float factor = 1.0f;
#pragma unroll 1
    for (int row = 0; row < rows_; ++row) {
      if (row > 0) load(row);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum += part_[i];
      for (int at = kLoads * 32; at + lane < args_.parts; at += 32)
        sum += __ldcg(from_ + row * args_.parts + at);
      sum = warp_sum(sum);
      if (lane == row) factor = rsqrtf(sum * args_.inverse_k + args_.eps);
    }
    return factor;
  }

 private:
  static constexpr int kLoads = 5;  ///< Under way together: the parts of 160 blocks.
  __device__ __forceinline__ void load(int row) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      part_[i] = i * 32 + lane < args_.parts ? __ldcg(from_ + row * args_.parts + i * 32) : 0.0f;
  }

  const GemvArgs<E>& args_;
  const int rows_;
  const float* from_;
  float part_[kLoads];
};

/// Brings the warp's part of x to shared memory, times the norm's weights and factors where
/// `kWeighs` and they were left to this kernel: lines of 128 bytes, [stage][m] of them, whose
/// pieces are exchanged by the row's number. Copies are asynchronous, so that all of them are under
/// way together, and counted by a barrier: groups of copies complete in order, behind those of W.
template <typename E, bool kWeighs>
class GemvStager {
 public:
  /// Before the PDL wait: the norm's weights are constants. `to`: lines of this warp. `arrived`:
  /// of this warp.
  __device__ GemvStager(const GemvArgs<E>& args, int stages, unsigned char* to,
                        std::uint64_t* arrived)
      : x_(args.x + first_k()),
        weight_(args.norm_weight == nullptr ? nullptr : args.norm_weight + first_k()),
        x_stride_(args.x_stride),
        m_(args.m),
        pieces_(static_cast<int>(stages * kPieces + 31 - threadIdx.x % 32) / 32),
        to_(shared_address(to) + threadIdx.x % 32 / kPieces * args.m * 128),
        arrived_(shared_address(arrived)) {
    if (threadIdx.x % 32 == 0) barrier_init(arrived, 32);
    if (kWeighs && weight_ != nullptr) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (i < pieces_) weights_[i] = load_vec<float, 8>(weight_ + i * kStep);
    }
    gemv_settle(x_);
    gemv_settle(to_);
    gemv_settle(arrived_);
    __syncwarp();
  }
  /// After it.
  __device__ __forceinline__ void start() {
    std::uint32_t to = to_;
#pragma unroll 1
    for (int i = 0; i < pieces_; ++i, to += 512 * m_) {
      const E* from = x_ + i * kStep;
#pragma unroll 1
      for (int row = 0; row < m_; ++row, from += x_stride_) copy16_async(place(to, row), from);
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(arrived_) : "memory");
  }
  /// Lane r has the factor of row r's norm, if it is one of x.
  __device__ __forceinline__ void finish(float factors) {
    barrier_wait(arrived_, 0);
    if (!kWeighs || weight_ == nullptr) return;
    std::uint32_t to = to_;
#pragma unroll
    for (int i = 0; i < kHeld; ++i, to += 512 * m_) weigh(i < pieces_, to, weights_[i], factors);
#pragma unroll 1
    for (int i = kHeld; __any_sync(0xffffffffu, i < pieces_); ++i, to += 512 * m_) {
      Vec<float, 8> weights{};
      if (i < pieces_) weights = load_vec<float, 8>(weight_ + i * kStep);
      weigh(i < pieces_, to, weights, factors);
    }
    __syncwarp();
  }

 private:
  static constexpr int kPieces = 8;  ///< Of 16 bytes, of a line.
  static constexpr int kHeld = 2;    ///< A lane's pieces whose weights are there before the wait.
  static constexpr int kStep =
      32 / kPieces * kGemvWarps * kGemvStage;  ///< Of K, to the next piece.

  __device__ static int first_k() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return (lane / kPieces * kGemvWarps + warp) * kGemvStage + lane % kPieces * 8;
  }
  __device__ static std::uint32_t place(std::uint32_t lines, int row) {
    return lines + row * 128 + (threadIdx.x % kPieces ^ row) * 16;
  }
  /// One of the lane's pieces, if it is there, of all rows.
  __device__ __forceinline__ void weigh(bool is_there, std::uint32_t lines,
                                        const Vec<float, 8>& weights, float factors) const {
    if (m_ == 1) return weigh_rows<1>(is_there, lines, 0, weights, factors);
#pragma unroll 1
    for (int row = 0; row < m_; row += 4) weigh_rows<4>(is_there, lines, row, weights, factors);
  }
  template <int kRows>
  __device__ __forceinline__ void weigh_rows(bool is_there, std::uint32_t lines, int first,
                                             const Vec<float, 8>& weights, float factors) const {
    std::uint32_t v[kRows][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (is_there && first + r < m_)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[r][0]), "=r"(v[r][1]), "=r"(v[r][2]), "=r"(v[r][3])
                     : "r"(place(lines, first + r))
                     : "memory");
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float factor = __shfl_sync(0xffffffffu, factors, (first + r) % 32);
      if (!is_there || first + r >= m_) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 x = unpack2<E>(v[r][j]);
        v[r][j] = pack2<E>(x.x * factor * weights.at[2 * j], x.y * factor * weights.at[2 * j + 1]);
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(place(lines, first + r)),
                   "r"(v[r][0]), "r"(v[r][1]), "r"(v[r][2]), "r"(v[r][3])
                   : "memory");
    }
  }

  const E* x_;
  const float* const weight_;
  const std::int64_t x_stride_;
  const int m_, pieces_;  ///< Rows; pieces of this lane of each.
  std::uint32_t to_;      ///< In shared memory: the lane's first line.
  std::uint32_t arrived_;
  Vec<float, 8> weights_[kHeld];
};

}  // namespace tandem::kernels
