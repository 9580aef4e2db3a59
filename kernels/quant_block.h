// SPDX-License-Identifier: Apache-2.0
// Weights in few bits, as they are handed from a file to the memory of CPU ranks: 32 values of a
// row share a scale and, in some formats, a least value. Both halves are kept as the file has them,
// so nothing is rounded a second time. Plain values.
#pragma once

#include <cstdint>

#include "kernels/device/dtype.h"

namespace tandem::kernels {

/// Values `scale * codes[i] + least` of 32 columns of one row.
struct QuantBlock {
  static constexpr std::int64_t kValues = 32;
  Float16 scale, least;
  std::int8_t codes[kValues] = {};
};

/// How codes of a weight are kept: in 8 bits as they are, or in 4 bits as `code + zero`, 0 to 15.
struct QuantFormat {
  int bits = 8;
  int zero = 0;            ///< Of 4 bits: 0 or 8.
  bool has_least = false;  ///< Otherwise all `least` are 0 and not kept.

  /// Bytes of the 32 values of a row.
  std::int64_t block_bytes() const { return (has_least ? 4 : 2) + bits * QuantBlock::kValues / 8; }
  friend bool operator==(const QuantFormat&, const QuantFormat&) = default;
};

/// What holds values of both: the same when they are equal, else 8 bits.
inline QuantFormat common_format(const QuantFormat& a, const QuantFormat& b) {
  return a == b ? a : QuantFormat{8, 0, a.has_least || b.has_least};
}

}  // namespace tandem::kernels
