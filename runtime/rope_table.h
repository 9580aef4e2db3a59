// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary embeddings by position, equal to transformers' modeling_rope_utils
// (float32 arithmetic, attention scaling multiplied in). Made once on the host, before the first
// step. Plain values.
//
// Scalings whose frequencies depend on the length of a sequence (`dynamic`, `longrope`) are fixed
// by the length that the table is made for: keys in the cache are rotated once, so frequencies
// must not change while a sequence grows.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model_config.h"

namespace tandem::runtime {

struct RopeFrequencies {
  std::vector<float> inverse;      ///< [rotary_dim / 2], radians per position
  float attention_scaling = 1.0f;  ///< Multiplies cosines and sines (yarn, longrope).
};

/// Frequencies for sequences of up to `length` tokens. Su et al. 2021 (arXiv 2104.09864);
/// yarn: Peng et al. 2023 (arXiv 2309.00071); longrope: Ding et al. 2024 (arXiv 2402.13753).
RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t length);

struct HostRopeTable {
  std::vector<float> cos, sin;  ///< [max_position, rotary_dim / 2], row-major
};

/// Positions 0 .. max_position - 1.
HostRopeTable make_rope_table(const RopeConfig& config, std::int64_t max_position);

}  // namespace tandem::runtime
