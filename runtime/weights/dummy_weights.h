// SPDX-License-Identifier: Apache-2.0
// Random weights without files: a value depends on (seed, tensor name, element number) alone, so
// every rank makes only its slices and all rank counts see the same model. Pure functions.
#pragma once

#include <cstdint>

#include "runtime/weights/checkpoint.h"

namespace tandem::runtime {

/// The tensors that `config` needs, with scales that keep activations near 1: norms near 1,
/// matrices of variance 1 / columns, biases near 0.
TensorMap dummy_tensors(const ModelConfig& config, std::uint64_t seed);

/// Elements [first, first + count) of a kDummy tensor.
void dummy_values(const TensorEntry& entry, std::int64_t first, std::int64_t count, float* out);

}  // namespace tandem::runtime
