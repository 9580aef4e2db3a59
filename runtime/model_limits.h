// SPDX-License-Identifier: Apache-2.0
// The largest shape numbers that a model file may state: far above every known model, and small
// enough that no count of bytes or elements made of them overflows 64 bits.
#pragma once

#include <cstdint>

namespace tandem::runtime {

inline constexpr std::int64_t kMaxHiddenSize = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxIntermediateSize = std::int64_t{1} << 22;
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 12;
inline constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 10;
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 12;
inline constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 28;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;

}  // namespace tandem::runtime
