// SPDX-License-Identifier: Apache-2.0
// Products of a packed weight with a few rows by the CPU's bfloat16 dot products (AVX512-BF16),
// used where the CPU has them: fewer rows than a library's tiles are made for, and each block of
// the weight is asked for while the one before it is multiplied.
#pragma once

#include "kernels/cpu/packed_weight.h"

namespace tandem::kernels::cpu {

/// Above it oneDNN's tiles win.
inline constexpr std::int64_t kMaxDotRows = 32;

bool has_bf16_dot();

/// `packed_matmul` for up to `kMaxDotRows` rows; pairs of products are added before they are
/// rounded. Call only where `has_bf16_dot()`.
template <typename Out>
void bf16_dot_matmul(const PackedShape& shape, const BFloat16* packed,
                     TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y);

}  // namespace tandem::kernels::cpu
