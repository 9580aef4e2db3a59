// SPDX-License-Identifier: Apache-2.0
// The one form in which CPU ranks keep a bfloat16 weight `[N, K]`: blocks of 64 rows, inside them
// pairs of columns, each pair 64 x 2 values. Padded with zeros to whole blocks and 32 columns. It
// is what oneDNN calls BA16a64b2a for the operand `[K, N]` and prefers where the CPU has bfloat16
// instructions; a matrix-vector product reads it from front to back without a sum across lanes.
#pragma once

#include <cstdint>

#include "kernels/device/buffer.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels::cpu {

inline constexpr std::int64_t kBlockRows = 64, kBlockCols = 32;

/// Extents of a packed weight.
struct PackedShape {
  std::int64_t rows = 0, cols = 0;
  std::int64_t blocks() const { return (rows + kBlockRows - 1) / kBlockRows; }
  std::int64_t padded_cols() const { return (cols + kBlockCols - 1) / kBlockCols * kBlockCols; }
  std::int64_t block_size() const { return kBlockRows * padded_cols(); }
  std::int64_t size() const { return blocks() * block_size(); }
  /// Where element (row, col) lies.
  std::int64_t at(std::int64_t row, std::int64_t col) const {
    return row / kBlockRows * block_size() + col / 2 * (2 * kBlockRows) + row % kBlockRows * 2 +
           col % 2;
  }
};

/// Row-major `[rows, cols]` -> packed.
void pack(const PackedShape& shape, const BFloat16* row_major, BFloat16* packed);

/// y `[M, rows]` = x W^T for x `[M, cols]`, in float, one rounding to Out. Reads the weight once
/// for every 4 rows of x: the way for one row, and for any number, on any CPU.
template <typename Out>
void packed_matmul(const PackedShape& shape, const BFloat16* packed,
                   TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y);

}  // namespace tandem::kernels::cpu
