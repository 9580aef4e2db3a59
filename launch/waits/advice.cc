// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/device/error.h"
#include "launch/waits/table.h"

namespace tandem::launch {
namespace {

bool on_cpu(const WaitsReport& report) {
  return report.devices.empty() || report.devices.front().starts_with("cpu");
}

std::string above(const WaitsReport& report, const std::string& op) {
  if (on_cpu(report)) return "more --threads or fewer ranks per core; batch more sequences";
  if (op == "attend") return "a better kernel: bench latency shows its share of the ceiling";
  return "a better kernel for these shapes; more rows per step use the same weights";
}

std::string skew(const WaitsReport& report, const std::string& cause) {
  if (cause == "await_plan") return "rank 0 is slow: look at its rows and at its host";
  const auto slowest = std::max_element(report.last_share.begin(), report.last_share.end());
  // Ranks that are alike come last 1/n of the time each.
  if (*slowest < 0.5 + 0.5 / static_cast<double>(report.last_share.size()))
    return "no rank in particular comes last: a crowded host (tandem doctor)";
  return concat("rank ", slowest - report.last_share.begin(), " comes last ",
                static_cast<int>(100 * *slowest + 0.5),
                " % of the time: look at its other rows, its host (tandem doctor), its shard");
}

std::string host(const std::string& cause) {
  if (cause == "schedule") return "fewer, longer requests; smaller --max-num-seqs";
  if (cause == "deliver") return "faster consumers: text, printing and HTTP run between steps";
  if (cause == "send_plan" || cause == "await_plan")
    return "a faster network for MPI; not more ranks than cores";
  return "";
}

}  // namespace

std::string row_title(const std::string& row) {
  if (row == "compute_at_ceiling") return "compute at the ceiling";
  if (row == "compute_above_ceiling") return "above the ceiling";
  if (row == "waiting_for_tiles") return "waiting for tiles";
  if (row == "transfer") return "communication";
  if (row == "rank_skew") return "rank skew";
  if (row == "launch_gaps") return "launch gaps";
  if (row == "allocation_and_mapping") return "allocation, mapping";
  if (row == "idle") return "idle, no requests";
  return row;
}

std::string advice(const WaitsReport& report, const std::string& kind, const std::string& row,
                   const std::string& cause) {
  if (row == "compute_above_ceiling") return above(report, cause);
  if (row == "waiting_for_tiles")
    return "longer prompts per step: --max-num-batched-tokens; keys and values of fewer heads";
  if (row == "fences")
    return cause == "stamps" ? "measuring: gone without --waits"
                             : "fewer kernels; beside communication: --mem-sync-domains=separate";
  if (row == "transfer")
    return on_cpu(report) ? "fewer ranks; a faster network"
                          : "fewer ranks; a faster link; try --all-reduce";
  if (row == "rank_skew") return skew(report, cause);
  if (row == "launch_gaps") {
    if (on_cpu(report)) return "code between ops: fewer, larger steps";
    return kind == "decode" ? "no --enforce-eager; a host that is not crowded (tandem doctor)"
                            : "longer prompts per step: --max-num-batched-tokens";
  }
  if (row == "allocation_and_mapping") return "memory mapped ahead: it is not needed again";
  if (row == "host") return host(cause);
  if (row == "idle") return "more requests";
  return "";
}

}  // namespace tandem::launch
