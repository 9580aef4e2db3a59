// SPDX-License-Identifier: Apache-2.0
// The results of one load on a server, for people and as rows. Rank 0 only.
#pragma once

#include <optional>
#include <string>

#include "launch/bench/load_report.h"
#include "launch/bench/results.h"

namespace tandem::launch {

/// Beside what the client saw.
struct ServeContext {
  std::string name;  ///< Of the case.
  double rate = 0;   ///< Asked for; infinite: all at once.
  std::int64_t gpus = 1;
  Objectives objectives;
  double floor_s = 0;           ///< Least time for the same work; 0: not known.
  std::optional<double> reuse;  ///< Share of prompt tokens found in the prefix cache.
  std::int64_t preemptions = 0;
  Misses misses;  ///< Of a run that was cut short.
};

/// True when the p99 of TTFT, TPOT and E2EL are within the objectives and nothing failed.
bool holds(const LoadReport& report, const Objectives& objectives);

std::string describe(const LoadReport& report, const ServeContext& context);
void add_rows(const LoadReport& report, const ServeContext& context, BenchResults& results);

}  // namespace tandem::launch
