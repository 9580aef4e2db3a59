// SPDX-License-Identifier: Apache-2.0
// The form in which CPU ranks keep a weight `[N, K]` of few bits: blocks of 64 rows, inside them
// groups of 32 columns. A group is 64 scales, 64 least values where the format has them, then codes
// by column so that a matrix-vector product reads it from front to back, without a sum across
// lanes. 8 bits: pairs of columns, each 64 x 2 codes. 4 bits: eights of columns, each 64 words of
// 32 bits; the codes of columns 2k and 2k + 1 are at bit 4k of a word's lower and upper half. Rows
// are padded with zeros to whole blocks; K is a multiple of 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/packed_weight.h"
#include "kernels/device/buffer.h"
#include "kernels/quant_block.h"

namespace tandem::kernels::cpu {

struct QuantizedShape {
  QuantFormat format;
  std::int64_t rows = 0, cols = 0;
  std::int64_t blocks() const { return (rows + kBlockRows - 1) / kBlockRows; }
  std::int64_t groups() const { return cols / QuantBlock::kValues; }
  std::int64_t group_bytes() const { return kBlockRows * format.block_bytes(); }
  std::int64_t block_bytes() const { return groups() * group_bytes(); }
  std::int64_t size_bytes() const { return blocks() * block_bytes(); }
  /// From a group's first byte to its codes.
  std::int64_t codes_at() const { return kBlockRows * (format.has_least ? 4 : 2); }
};

/// Row-major `[rows, cols / 32]` -> packed.
void pack(const QuantizedShape& shape, const QuantBlock* row_major, std::byte* packed);

/// Values of one row, `[cols]`.
void unpack_row(const QuantizedShape& shape, const std::byte* packed, std::int64_t row,
                BFloat16* out);

/// Whether to use what this CPU has, or the plain loops that say what is meant, for tests.
enum class Loops : std::uint8_t { kFastest, kPlain };

/// Values of one block of 64 rows as `packed_weight.h` keeps them, `[64 * cols]`; one rounding.
void unpack_block(const QuantizedShape& shape, const std::byte* block, BFloat16* out,
                  Loops loops = Loops::kFastest);

/// y `[M, rows]` = x W^T for x `[M, cols]`. x is taken in 16 bits per value and one scale per 32
/// (an error below 2^-16 of the largest of them); a group's products are added exactly, as
/// integers, and groups in order, in float: the same bits on every CPU and for any number of rows
/// and threads.
template <typename Out>
void quantized_matmul(const QuantizedShape& shape, const std::byte* packed,
                      TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y,
                      Loops loops = Loops::kFastest);

}  // namespace tandem::kernels::cpu
