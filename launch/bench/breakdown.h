// SPDX-License-Identifier: Apache-2.0
// The ops of one step of a model, from the spans that one rank recorded: per layer, and those
// outside of layers, each with its kernels, the least that it has to move and compute, and the time
// it took. Values are medians over steps. Plain values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/device/recorder.h"
#include "launch/bench/results.h"

namespace tandem::launch {

/// One op: of a mean layer, or of the whole step.
struct BreakdownLine {
  std::string op;
  double kernels = 0;  ///< 0: not counted (CPU).
  double bytes = 0, flops = 0;
  double us = 0, spread_us = 0;
  double floor_us = 0;  ///< 0: no ceiling is known, or none applies (messages).
};

struct Breakdown {
  std::size_t steps = 0, layers = 0;
  std::vector<BreakdownLine> layer, step;  ///< In the order in which they run.
  /// All ops of a step.
  BreakdownLine whole() const;
};

/// Where a recorder was when the steps began that are to be broken down.
struct RecorderMark {
  explicit RecorderMark(const Recorder& recorder)
      : spans(recorder.spans().size()), steps(recorder.steps().size()) {}
  std::size_t spans, steps;
};

/// Of the steps recorded since `mark` with `decode_rows` and `prefill_tokens`, of a model with
/// `layers`. The ends of kernels that only measure are left out.
Breakdown break_down(const Recorder& recorder, const RecorderMark& mark, std::int32_t decode_rows,
                     std::int32_t prefill_tokens, std::size_t layers, bool synchronous,
                     const Ceilings& ceilings);

/// For people, under a line that names the case; no line break at the end.
std::string breakdown_table(const std::string& name, const Breakdown& breakdown);
/// Rows "NAME layer OP" and "NAME step OP" with metrics us, bytes and kernels.
void add_rows(const std::string& name, const Breakdown& breakdown, BenchResults& results);

}  // namespace tandem::launch
