// SPDX-License-Identifier: Apache-2.0
// What a streaming matmul is given, and how its x comes to shared memory, normed on the way where
// that was left to it. Device code, but for the constants.
#pragma once

#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = kGemvWarps * 32;
inline constexpr int kGemvStage = 64;  // elements of K: a line of 128 bytes of each row
inline constexpr int kGemvMinDepth = 3;
inline constexpr int kGemvMaxDepth = 8;  // stages under way per warp: 128 KB per SM
inline constexpr std::size_t kGemvMaxShared = 224 << 10;
inline constexpr int kGemvTileRows = 16;
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

/// Lane r of the warp gets the factor of row r's norm.
template <typename E>
__device__ float gemv_norm_factor(const GemvArgs<E>& args) {
  constexpr int kLoads = 5;  // under way together: the parts of 160 blocks
  const int lane = threadIdx.x % 32;
  float factor = 0;
  for (int row = 0; row < args.m; ++row) {
    float sum = 0;
    for (int base = 0; base < args.parts; base += 32 * kLoads) {
      float part[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int at = base + i * 32 + lane;
        part[i] = at < args.parts ? __ldcg(args.square_sums + row * args.parts + at) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum += part[i];
    }
    sum = warp_sum(sum);
    if (lane == row) factor = rsqrtf(sum / args.k + args.eps);
  }
  return factor;
}

/// Brings the warp's part of x to shared memory, normed where that was left to this kernel: lines
/// of 128 bytes, [stage][m] of them, whose pieces are exchanged by the row's number.
template <typename E>
class GemvStager {
 public:
  /// Before the PDL wait: the norm's weights are constants.
  __device__ GemvStager(const GemvArgs<E>& args, int stages)
      : args_(args), m_(args.m), pieces_(stages * args.m * kPieces) {
    if (args.norm_weight != nullptr) load_weights(0);
  }
  /// After it. `to`: lines of this warp.
  __device__ void run(unsigned char* to) {
    const bool norms = args_.norm_weight != nullptr;
    float factors = 0;
    for (int base = 0; base < pieces_; base += 32 * kBatch) {
      Vec<E, 8> v[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const Place at(*this, base + b * 32);
        uint4 bits = {0, 0, 0, 0};
        if (at.inside)
          bits = __ldcg(reinterpret_cast<const uint4*>(args_.x + at.row * args_.x_stride + at.k));
        v[b] = *reinterpret_cast<const Vec<E, 8>*>(&bits);
      }
      if (norms && base == 0) factors = gemv_norm_factor(args_);  // while x is on its way
      if (norms && base > 0) load_weights(base);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const Place at(*this, base + b * 32);
        if (norms) {
          const float factor = __shfl_sync(0xffffffffu, factors, at.row);
#pragma unroll
          for (int j = 0; j < 8; ++j)
            v[b].at[j] = from_float<E>(to_float(v[b].at[j]) * factor * weights_[b].at[j]);
        }
        if (at.inside)
          store_vec(reinterpret_cast<E*>(to + at.line * 128 + (at.piece ^ at.row) * 16), v[b]);
      }
    }
    __syncwarp();
  }

 private:
  static constexpr int kPieces = 8, kBatch = 4;  ///< 16 bytes; under way together.
  struct Place {
    int line, row, piece, k;
    bool inside;
    __device__ Place(const GemvStager& s, int first) {
      const int i = first + static_cast<int>(threadIdx.x) % 32;
      const int warp = static_cast<int>(threadIdx.x) / 32;
      inside = i < s.pieces_;
      line = i / kPieces;
      piece = i % kPieces;
      const int stage = s.m_.divide(line);
      row = line - stage * s.args_.m;
      k = (stage * kGemvWarps + warp) * kGemvStage + piece * 8;
    }
  };
  __device__ void load_weights(int base) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const Place at(*this, base + b * 32);
      weights_[b] = {};
      if (at.inside) weights_[b] = load_vec<float, 8>(args_.norm_weight + at.k);
    }
  }

  const GemvArgs<E>& args_;
  const FastDivisor m_;
  const int pieces_;
  Vec<float, 8> weights_[kBatch];
};

}  // namespace tandem::kernels
