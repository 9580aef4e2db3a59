// SPDX-License-Identifier: Apache-2.0
// Whether steps with prefill run in two halves (`parallel/overlap.h`), and from how many rows on.
// Halves hide the sums over ranks, but matmuls of half the rows, on fewer SMs, are slower: small
// steps lose. Plain values, equal on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "comm/control_plane.h"
#include "runtime/prefill_trial.h"

namespace tandem::runtime {

/// `--overlap=auto|on|off`
enum class OverlapMode : std::uint8_t { kAuto, kOn, kOff };

/// ConfigError for any other word.
OverlapMode parse_overlap(std::string_view text);

/// One size of step, run both ways.
struct OverlapTiming {
  std::int32_t tokens = 0;
  double plain_s = 0, overlapped_s = 0;
};

/// The smallest size from which on every size is at least 1 % faster overlapped; `timings` by
/// growing size. `kNeverOverlap`: none is.
std::int32_t choose_overlap_min_tokens(const std::vector<OverlapTiming>& timings);

/// Seconds of one step of `tokens` prefill rows on this rank.
using TimeStep = std::function<double(std::int32_t tokens, bool overlapped)>;

/// What the mode means for this job; with kAuto steps of 256 rows up to `max_tokens` are timed, and
/// the slowest rank counts. Collective. One log line from rank 0. Overlap that was asked for on one
/// rank is refused with a warning.
std::int32_t overlap_min_tokens(comm::ControlPlane& control, OverlapMode mode,
                                std::int32_t max_tokens, const TimeStep& time_step);

}  // namespace tandem::runtime
