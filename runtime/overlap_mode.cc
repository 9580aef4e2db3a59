// SPDX-License-Identifier: Apache-2.0
#include "runtime/overlap_mode.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::runtime {
namespace {

constexpr std::int32_t kSmallestTimed = 256, kLargestTimed = 4096;
constexpr int kTimedRuns = 3;
constexpr double kWorthwhile = 0.99;

/// Median over runs of the slowest rank's seconds; the first run warms up and tunes.
double time_agreed(comm::ControlPlane& control, const TimeStep& time_step, std::int32_t tokens,
                   bool overlapped) {
  std::vector<double> seconds;
  for (int run = 0; run <= kTimedRuns; ++run) {
    const double mine = time_step(tokens, overlapped);
    const double slowest = static_cast<double>(control.max(std::llround(mine * 1e9))) / 1e9;
    if (run > 0) seconds.push_back(slowest);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

std::string milliseconds(double seconds) {
  return concat(static_cast<double>(std::llround(seconds * 1e5)) / 100, " ms");
}

}  // namespace

OverlapMode parse_overlap(std::string_view text) {
  if (text == "auto") return OverlapMode::kAuto;
  if (text == "on") return OverlapMode::kOn;
  TANDEM_REQUIRE(text == "off", "--overlap ", text, " is not known; use auto, on or off");
  return OverlapMode::kOff;
}

std::int32_t choose_overlap_min_tokens(const std::vector<OverlapTiming>& timings) {
  std::int32_t chosen = kNeverOverlap;
  for (auto timing = timings.rbegin(); timing != timings.rend(); ++timing) {
    if (timing->overlapped_s > kWorthwhile * timing->plain_s) break;
    chosen = timing->tokens;
  }
  return chosen;
}

std::int32_t overlap_min_tokens(comm::ControlPlane& control, OverlapMode mode,
                                std::int32_t max_tokens, const TimeStep& time_step) {
  if (control.size() == 1) {
    if (mode == OverlapMode::kOn)
      log_warn(
          "--overlap=on: one rank has nothing to overlap, it exchanges no sums; start more with "
          "mpirun -n N, or leave the option out");
    return kNeverOverlap;
  }
  if (mode == OverlapMode::kOff) return kNeverOverlap;
  if (mode == OverlapMode::kOn) return 2;
  std::vector<OverlapTiming> timings;
  std::string seen;
  for (std::int32_t tokens = kSmallestTimed; tokens <= std::min(max_tokens, kLargestTimed);
       tokens *= 2) {
    OverlapTiming timing;
    timing.tokens = tokens;
    timing.plain_s = time_agreed(control, time_step, tokens, false);
    timing.overlapped_s = time_agreed(control, time_step, tokens, true);
    seen += concat(seen.empty() ? "" : "; ", tokens, " tokens ", milliseconds(timing.plain_s),
                   " plain, ", milliseconds(timing.overlapped_s), " overlapped");
    timings.push_back(timing);
  }
  const std::int32_t chosen = choose_overlap_min_tokens(timings);
  if (control.rank() == 0 && !timings.empty())
    log_info("overlap: ",
             chosen == kNeverOverlap ? std::string("never")
                                     : concat("from ", chosen, " tokens of a step"),
             " (", seen, ")");
  return chosen;
}

}  // namespace tandem::runtime
