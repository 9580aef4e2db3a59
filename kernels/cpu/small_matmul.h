// SPDX-License-Identifier: Apache-2.0
// Products of small float matrices that lie in the first cache, for attention.
#pragma once

#include "kernels/cpu/vec.h"

namespace tandem::kernels::cpu {

/// Columns of one register tile.
inline constexpr std::int32_t kTileCols = 32;

/// c[r][0..32) += sum over k of a[r][k] b[k][0..32) for R rows.
template <int R>
void multiply_tile(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                   std::int32_t depth, float* c, std::int64_t c_stride) {
  constexpr int kVectors = kTileCols / kFloats;
  Floats sum[R][kVectors];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = load<Floats>(c + r * c_stride + v * kFloats);
  for (std::int32_t k = 0; k < depth; ++k, b += b_stride)
    for (int v = 0; v < kVectors; ++v) {
      const auto value = load<Floats>(b + v * kFloats);
      for (int r = 0; r < R; ++r) sum[r][v] += value * a[r * a_stride + k];
    }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kFloats, sum[r][v]);
}

/// c `[rows, cols]` += a `[rows, depth]` b `[depth, cols]`; cols is a multiple of 32.
inline void multiply_add(const float* a, std::int64_t a_stride, const float* b, std::int64_t cols,
                         std::int32_t depth, float* c, std::int32_t rows) {
  for (std::int64_t col = 0; col < cols; col += kTileCols) {
    std::int32_t row = 0;
    for (; row + 2 <= rows; row += 2)
      multiply_tile<2>(a + row * a_stride, a_stride, b + col, cols, depth, c + row * cols + col,
                       cols);
    if (row < rows)
      multiply_tile<1>(a + row * a_stride, a_stride, b + col, cols, depth, c + row * cols + col,
                       cols);
  }
}

}  // namespace tandem::kernels::cpu
