// SPDX-License-Identifier: Apache-2.0
#include "launch/waits/report.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tandem::launch {
namespace {

using runtime::AttributedStep;
using runtime::WaitRow;
using Steps = std::vector<const AttributedStep*>;

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(share * last + 0.5)];
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double step_us(const AttributedStep& step) {
  return static_cast<double>(step.end_ns - step.begin_ns) / 1e3;
}

WaitLine make_line(WaitRow row, const std::string& cause, const std::vector<double>& us) {
  return {runtime::key(row), cause, mean(us), quantile(us, 0.5)};
}

RankWaits make_rank(const Steps& steps) {
  RankWaits waits;
  std::vector<double> lengths;
  std::map<std::pair<WaitRow, Activity>, std::vector<double>> causes;
  for (const AttributedStep* step : steps) {
    lengths.push_back(step_us(*step));
    for (const auto& cell : step->cells) causes[{cell.row, cell.activity}].push_back(cell.ns / 1e3);
  }
  waits.step_mean_us = mean(lengths);
  waits.step_median_us = quantile(lengths, 0.5);
  waits.step_p99_us = quantile(lengths, 0.99);
  for (int r = 0; r < runtime::kNumWaitRows; ++r) {
    const auto row = static_cast<WaitRow>(r);
    std::vector<double> us;
    for (const AttributedStep* step : steps) us.push_back(step->ns(row) / 1e3);
    waits.rows.push_back(make_line(row, "", us));
  }
  for (auto& [cause, us] : causes) {
    us.resize(steps.size());  // steps that do not have it: 0
    const auto& [row, activity] = cause;
    waits.causes.push_back(make_line(row, activity == Activity::kCount ? "" : name(activity), us));
  }
  std::stable_sort(waits.causes.begin(), waits.causes.end(),
                   [](const WaitLine& a, const WaitLine& b) { return a.mean_us > b.mean_us; });
  return waits;
}

WaitPhase make_phase(const std::string& kind, const std::vector<Steps>& ranks,
                     const std::vector<double>& unstamped_us) {
  WaitPhase phase;
  phase.kind = kind;
  phase.steps = static_cast<std::int64_t>(ranks.front().size());
  for (const AttributedStep* step : ranks.front())
    phase.rows_per_step += step->record.decode_rows + step->record.prefill_tokens;
  phase.rows_per_step /= static_cast<double>(phase.steps);
  phase.unstamped_step_median_us = quantile(unstamped_us, 0.5);
  for (const Steps& steps : ranks) phase.ranks.push_back(make_rank(steps));
  return phase;
}

}  // namespace

WaitsReport make_report(const std::vector<runtime::RankLog>& logs,
                        const runtime::Attribution& attribution, std::int64_t first_step) {
  WaitsReport report;
  for (const runtime::RankLog& log : logs) {
    report.hosts.push_back(log.host);
    report.devices.push_back(log.device);
    report.ceilings.push_back(log.ceilings);
    report.clock_uncertainty_us.push_back(log.clock_uncertainty_us);
    report.dropped_spans += log.dropped;
  }
  for (const runtime::Arrivals& arrivals : attribution.arrivals)
    report.last_share.push_back(
        static_cast<double>(arrivals.last) /
        static_cast<double>(std::max<std::int64_t>(arrivals.collectives, 1)));
  for (const bool prefill : {false, true}) {
    std::vector<Steps> ranks(attribution.steps.size());
    std::vector<double> unstamped_us;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (const AttributedStep& step : attribution.steps[r]) {
        if (step.record.step < first_step || (step.record.prefill_tokens > 0) != prefill) continue;
        if (step.record.stamped != 0)
          ranks[r].push_back(&step);
        else if (r == 0)
          unstamped_us.push_back(step_us(step));
      }
    if (!ranks.empty() && !ranks.front().empty())
      report.phases.push_back(make_phase(prefill ? "prefill" : "decode", ranks, unstamped_us));
  }
  return report;
}

}  // namespace tandem::launch
