// SPDX-License-Identifier: Apache-2.0
// The report of waits as numbers: decode and prefill steps apart, each rank's mean and median time
// per step by row and by what caused it. Made on rank 0 from the logs of all ranks; written as
// JSON, and read back from it for comparisons. Plain values.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "runtime/waits/attribution.h"

namespace tandem::launch {

/// One row of one rank. `cause` is an activity's name, or empty.
struct WaitLine {
  std::string row, cause;
  double mean_us = 0, median_us = 0;
};

struct RankWaits {
  double step_mean_us = 0, step_median_us = 0, step_p99_us = 0;
  std::vector<WaitLine> rows;    ///< All rows, in the order of WaitRow; they add up to the step.
  std::vector<WaitLine> causes;  ///< The same time by row and cause, largest mean first.
};

/// Steps of one kind.
struct WaitPhase {
  std::string kind;  ///< "decode" (no prompt tokens) or "prefill".
  std::int64_t steps = 0;
  double rows_per_step = 0;             ///< Token rows.
  double unstamped_step_median_us = 0;  ///< Steps without stamps (CUDA); 0: there are none.
  std::vector<RankWaits> ranks;
};

struct WaitsReport {
  std::string model, command;
  std::vector<std::string> hosts, devices;      ///< By rank.
  std::vector<runtime::RankCeilings> ceilings;  ///< By rank.
  std::vector<double> clock_uncertainty_us;     ///< By rank.
  std::vector<double> last_share;  ///< Share of the collectives to which a rank came last.
  std::int64_t dropped_spans = 0;
  std::vector<WaitPhase> phases;
};

/// Steps before `first_step` are left out.
WaitsReport make_report(const std::vector<runtime::RankLog>& logs,
                        const runtime::Attribution& attribution, std::int64_t first_step);

boost::json::object to_json(const WaitsReport& report);
/// ConfigError naming `file` when it is not what `to_json` makes.
WaitsReport read_report(const std::string& file);

}  // namespace tandem::launch
