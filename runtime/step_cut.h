// SPDX-License-Identifier: Apache-2.0
// Where a step's token buffer is cut into two halves whose communication and computation overlap.
// The first half holds the decode rows and a prefix of the prefill rows in (sequence, position)
// order, so the second half's queries find all earlier keys in the cache. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/step_view.h"
#include "runtime/batch_plan.h"

namespace tandem::runtime {

struct StepCut {
  std::int32_t row = 0;  ///< First row of the second half; the number of rows: there is none.
  /// By half: first row of each of its segments, then the half's end, counted from the half's
  /// first row.
  std::array<std::vector<std::int32_t>, 2> segment_begin;
  std::array<std::int32_t, 2> longest{};  ///< Tokens of the half's longest segment.
};

/// Halves of about equal numbers of tokens, cut between sequences or inside one. Inside one, large
/// steps are cut at a multiple of 128 tokens, the query tile of prefill attention.
StepCut cut_step(std::int32_t num_decode, std::span<const PrefillSegment> segments);

/// Rows [first, first + step.num_tokens) of the step's activations, with the step as they see it.
template <Device D>
struct StepPart {
  kernels::StepView<D> step;
  std::int64_t first = 0;
};

/// All rows of a step, and the same rows as two halves: the second is empty when there is no cut.
template <Device D>
struct StepRows {
  StepPart<D> whole;
  std::array<StepPart<D>, 2> halves;
  bool overlapped = false;  ///< Run the halves, not the whole.
};

}  // namespace tandem::runtime
