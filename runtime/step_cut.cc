// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_cut.h"

#include <algorithm>

namespace tandem::runtime {
namespace {

constexpr std::int32_t kQueryTile = 128;
/// From here on half a tile of imbalance is less than a tile that is half empty.
constexpr std::int32_t kLargeStep = 8 * kQueryTile;

std::int32_t length(const PrefillSegment& segment) {
  return static_cast<std::int32_t>(segment.tokens.size());
}

std::int32_t cut_row(std::int32_t num_decode, std::span<const PrefillSegment> segments) {
  std::int32_t rows = num_decode;
  for (const PrefillSegment& segment : segments) rows += length(segment);
  const std::int32_t middle = std::max(num_decode, (rows + 1) / 2);
  if (rows < kLargeStep) return middle;
  std::int32_t begin = num_decode;
  for (const PrefillSegment& segment : segments) {
    const std::int32_t size = length(segment);
    if (middle < begin + size) {
      const std::int32_t tiles = (middle - begin + kQueryTile / 2) / kQueryTile;
      return begin + std::min(size, tiles * kQueryTile);
    }
    begin += size;
  }
  return rows;
}

}  // namespace

StepCut cut_step(std::int32_t num_decode, std::span<const PrefillSegment> segments) {
  StepCut cut;
  cut.row = cut_row(num_decode, segments);
  const std::array<std::int32_t, 2> origin{0, cut.row};
  std::int32_t begin = num_decode;
  std::array<std::int32_t, 2> end{std::min(num_decode, cut.row), 0};
  for (const PrefillSegment& segment : segments) {
    const std::int32_t next = begin + length(segment);
    const std::array<std::int32_t, 2> from{begin, std::max(begin, cut.row)};
    const std::array<std::int32_t, 2> to{std::min(next, cut.row), next};
    for (const std::size_t half : {0u, 1u}) {
      if (from[half] >= to[half]) continue;
      cut.segment_begin[half].push_back(from[half] - origin[half]);
      cut.longest[half] = std::max(cut.longest[half], to[half] - from[half]);
      end[half] = to[half] - origin[half];
    }
    begin = next;
  }
  for (const std::size_t half : {0u, 1u}) cut.segment_begin[half].push_back(end[half]);
  return cut;
}

}  // namespace tandem::runtime
