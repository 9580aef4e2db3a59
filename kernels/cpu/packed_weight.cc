// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/vec.h"

namespace tandem::kernels::cpu {
namespace {

/// Rows of x that share one pass over the weight.
constexpr int kRowsAtOnce = 4;

/// Sums of `R` rows of x with `V` x 8 rows of one weight block. `x` is `[R, stride]` floats, `sums`
/// `[R, 64]`.
template <int R, int V>
void multiply_part(const BFloat16* block, const float* x, std::int64_t stride, std::int64_t pairs,
                   float* sums) {
  Floats sum[R][V] = {};
  for (std::int64_t pair = 0; pair < pairs; ++pair, block += 2 * kBlockRows) {
    for (int v = 0; v < V; ++v) {
      const auto both = load<Words>(block + 2 * kFloats * v);
      // A bfloat16 is the upper half of a float.
      const Floats even = cast<Floats>(both << 16), odd = cast<Floats>(both & 0xffff0000u);
      for (int r = 0; r < R; ++r)
        sum[r][v] += even * x[r * stride + 2 * pair] + odd * x[r * stride + 2 * pair + 1];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(sums + r * kBlockRows + v * kFloats, sum[r][v]);
}

/// As many sums as fit into 16 registers beside the operands.
template <int R>
void multiply_block(const BFloat16* block, const float* x, std::int64_t stride, std::int64_t pairs,
                    float* sums) {
  constexpr int kVectors = R == 1 ? 8 : R == 2 ? 4 : 2;
  for (int at = 0; at < kBlockRows; at += kVectors * kFloats)
    multiply_part<R, kVectors>(block + 2 * at, x, stride, pairs, sums + at);
}

void multiply_rows(int rows, const BFloat16* block, const float* x, std::int64_t stride,
                   std::int64_t pairs, float* sums) {
  if (rows == 1) return multiply_block<1>(block, x, stride, pairs, sums);
  if (rows == 2) return multiply_block<2>(block, x, stride, pairs, sums);
  if (rows == 3) return multiply_block<3>(block, x, stride, pairs, sums);
  multiply_block<4>(block, x, stride, pairs, sums);
}

}  // namespace

void pack(const PackedShape& shape, const BFloat16* row_major, BFloat16* packed) {
  const std::int64_t cols = shape.padded_cols();
#pragma omp parallel for
  for (std::int64_t block = 0; block < shape.blocks(); ++block) {
    BFloat16* out = packed + block * shape.block_size();
    std::memset(static_cast<void*>(out), 0,
                static_cast<std::size_t>(shape.block_size()) * sizeof *out);
    const std::int64_t begin = block * kBlockRows, end = std::min(begin + kBlockRows, shape.rows);
    // In tiles, so that neither side is walked in strides longer than a page.
    for (std::int64_t tile = 0; tile < cols; tile += kBlockCols)
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t col = tile; col < std::min(tile + kBlockCols, shape.cols); ++col)
          out[shape.at(row - begin, col)] = row_major[row * shape.cols + col];
  }
}

template <typename Out>
void packed_matmul(const PackedShape& shape, const BFloat16* packed,
                   TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y) {
  const std::int64_t cols = shape.padded_cols();
  std::vector<float> values(static_cast<std::size_t>(x.rows * cols));
  for (std::int64_t row = 0; row < x.rows; ++row)
    for (std::int64_t col = 0; col < x.cols; ++col)
      values[static_cast<std::size_t>(row * cols + col)] = x.row(row)[col];
#pragma omp parallel for
  for (std::int64_t block = 0; block < shape.blocks(); ++block) {
    const BFloat16* weight = packed + block * shape.block_size();
    const std::int64_t begin = block * kBlockRows, count = std::min(kBlockRows, shape.rows - begin);
    for (std::int64_t row = 0; row < x.rows; row += kRowsAtOnce) {
      float sums[kRowsAtOnce * kBlockRows];
      const auto rows = static_cast<int>(std::min<std::int64_t>(kRowsAtOnce, x.rows - row));
      multiply_rows(rows, weight, values.data() + row * cols, cols, cols / 2, sums);
      for (int r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < count; ++i)
          y.row(row + r)[begin + i] = Out(sums[r * kBlockRows + i]);
    }
  }
}

template void packed_matmul(const PackedShape&, const BFloat16*, TensorView<const BFloat16, Cpu>,
                            TensorView<float, Cpu>);
template void packed_matmul(const PackedShape&, const BFloat16*, TensorView<const BFloat16, Cpu>,
                            TensorView<BFloat16, Cpu>);

}  // namespace tandem::kernels::cpu
