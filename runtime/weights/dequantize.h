// SPDX-License-Identifier: Apache-2.0
// Storage types: their block sizes, and the values of quantised blocks, equal bit for bit to the
// `gguf` Python package (format: https://github.com/ggml-org/llama.cpp, gguf-py/gguf/quants.py).
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/weights/checkpoint.h"

namespace tandem::runtime {

std::int64_t block_elements(StorageType type);  ///< Values per block; 1 for plain types.
std::int64_t block_bytes(StorageType type);     ///< Bytes per block; 0 for kDummy.
std::string_view name(StorageType type);        ///< "F32", "Q4_1", ...

/// `num_blocks` blocks at `blocks` (any alignment) -> `num_blocks * block_elements` floats.
void dequantize(StorageType type, const std::byte* blocks, std::int64_t num_blocks, float* out);

}  // namespace tandem::runtime
