// SPDX-License-Identifier: Apache-2.0
// From overlapping spans to one answer per instant. Pieces are sorted, do not overlap, and name the
// span that an instant belongs to; where there is no piece nothing was recorded. Plain functions.
#pragma once

#include <functional>
#include <vector>

#include "kernels/device/recorder.h"

namespace tandem::runtime {

struct Piece {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::size_t span = 0;  ///< Index into the spans.
  std::int64_t size_ns() const { return end_ns - begin_ns; }
};

/// The spans that `wanted` picks: an instant goes to the innermost of spans that nest, and to the
/// oldest unfinished of spans that overlap without nesting.
std::vector<Piece> flatten(const std::vector<TimeSpan>& spans,
                           const std::function<bool(const TimeSpan&)>& wanted);

/// `upper` where it has pieces, `lower` elsewhere.
std::vector<Piece> overlay(const std::vector<Piece>& lower, const std::vector<Piece>& upper);

/// One rank's instants: ops of the compute stream, else ops of the comm stream (communication
/// counts only while compute waits), else what the step thread did. With `synchronous` all spans
/// nest.
std::vector<Piece> rank_timeline(const std::vector<TimeSpan>& spans, bool synchronous);

}  // namespace tandem::runtime
