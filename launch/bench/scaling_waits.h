// SPDX-License-Identifier: Apache-2.0
// Where the steps of each number of ranks went: the waits reports of `bench scaling`, side by side.
// Means over ranks and steps. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "launch/bench/results.h"
#include "launch/svg_chart.h"
#include "launch/waits/report.h"

namespace tandem::launch {

struct SizeWaits {
  int ranks = 1;
  WaitsReport report;
};

/// Steps of one kind on one number of ranks.
struct WaitSplit {
  int ranks = 1;
  std::string kind;  ///< decode or prefill
  double step_us = 0;
  std::vector<std::pair<std::string, double>> rows;  ///< Row and microseconds, in report order.
  double exposed_us() const;  ///< Transfer and rank skew: communication that nothing hides.
};

/// By kind, then by ranks.
std::vector<WaitSplit> wait_splits(const std::vector<SizeWaits>& waits);

std::string waits_split_table(const std::vector<WaitSplit>& splits);
/// `model` is "llama-3-8b bf16".
void add_rows(const std::string& model, const std::vector<WaitSplit>& splits,
              BenchResults& results);
/// Share of a step by row, over ranks: a chart per kind.
std::vector<Chart> wait_charts(const std::vector<WaitSplit>& splits);

}  // namespace tandem::launch
