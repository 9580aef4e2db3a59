// SPDX-License-Identifier: Apache-2.0
#include "runtime/waits/timeline.h"

#include <algorithm>

namespace tandem::runtime {

std::vector<Piece> flatten(const std::vector<TimeSpan>& spans,
                           const std::function<bool(const TimeSpan&)>& wanted) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (wanted(spans[i]) && spans[i].end_ns > spans[i].begin_ns) order.push_back(i);
  // Of spans that begin together the longer one is the outer one.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (spans[a].begin_ns != spans[b].begin_ns) return spans[a].begin_ns < spans[b].begin_ns;
    return spans[a].end_ns > spans[b].end_ns;
  });
  std::vector<Piece> pieces;
  std::vector<std::size_t> open;
  std::int64_t cursor = INT64_MIN;
  const auto emit = [&](std::int64_t until) {
    if (until > cursor) pieces.push_back({cursor, until, open.back()});
    cursor = std::max(cursor, until);
  };
  for (const std::size_t next : order) {
    const TimeSpan& span = spans[next];
    while (!open.empty() && (spans[open.back()].end_ns <= span.begin_ns ||
                             spans[open.back()].end_ns < span.end_ns)) {
      emit(spans[open.back()].end_ns);
      open.pop_back();
    }
    if (!open.empty()) emit(span.begin_ns);
    cursor = std::max(cursor, span.begin_ns);
    open.push_back(next);
  }
  for (; !open.empty(); open.pop_back()) emit(spans[open.back()].end_ns);
  return pieces;
}

std::vector<Piece> overlay(const std::vector<Piece>& lower, const std::vector<Piece>& upper) {
  std::vector<Piece> merged;
  auto top = upper.begin();
  for (Piece piece : lower) {
    // What ended before this piece stands alone; what covers it cuts it.
    while (top != upper.end() && top->end_ns <= piece.begin_ns) merged.push_back(*top++);
    while (top != upper.end() && top->begin_ns < piece.end_ns) {
      if (top->begin_ns > piece.begin_ns)
        merged.push_back({piece.begin_ns, top->begin_ns, piece.span});
      piece.begin_ns = std::min(top->end_ns, piece.end_ns);
      if (top->end_ns > piece.end_ns) break;
      merged.push_back(*top++);
    }
    if (piece.begin_ns < piece.end_ns) merged.push_back(piece);
  }
  merged.insert(merged.end(), top, upper.end());
  return merged;
}

std::vector<Piece> rank_timeline(const std::vector<TimeSpan>& spans, bool synchronous) {
  if (synchronous) return flatten(spans, [](const TimeSpan&) { return true; });
  const auto lane = [&](Lane which) {
    return flatten(spans, [which](const TimeSpan& span) { return span.lane == which; });
  };
  return overlay(overlay(lane(Lane::kHost), lane(Lane::kComm)), lane(Lane::kCompute));
}

}  // namespace tandem::runtime
