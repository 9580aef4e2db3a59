// SPDX-License-Identifier: Apache-2.0
// Which matrices of a checkpoint CPU ranks keep in the few bits of its file, and which are made
// bfloat16 as they are loaded. Plain values; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/quant_block.h"
#include "parallel/shard.h"
#include "runtime/weights/checkpoint.h"
#include "runtime/weights/tensor_names.h"

namespace tandem::runtime {

/// How blocks of that type stay; nothing for types that do not: plain ones, and those whose scales
/// are no halves of 32 values.
std::optional<kernels::QuantFormat> quant_format(StorageType type);

/// `num_blocks` blocks of 32 values at `blocks` (any alignment), their values unchanged. `type` has
/// a `quant_format`.
void read_blocks(StorageType type, const std::byte* blocks, std::int64_t num_blocks,
                 kernels::QuantBlock* out);

/// Of a matrix made of `parts`, one under the other, with columns `cols` of each: nothing unless
/// all parts stay in few bits and `cols` are whole blocks.
std::optional<kernels::QuantFormat> quant_format(const Checkpoint& checkpoint,
                                                 const std::vector<TensorSlice>& parts,
                                                 parallel::Range cols);

/// The type that most bytes which stay in few bits have, "q4_1"; "" when there are none.
std::string main_format(const Checkpoint& checkpoint);

}  // namespace tandem::runtime
