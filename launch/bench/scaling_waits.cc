// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/scaling_waits.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

/// Rows below this share of every size's step are not drawn.
constexpr double kShownShare = 0.005;

std::string words_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

WaitSplit split_of(int ranks, const WaitPhase& phase) {
  WaitSplit split{ranks, phase.kind, 0, {}};
  const auto count = static_cast<double>(phase.ranks.size());
  for (const WaitLine& line : phase.ranks.front().rows) split.rows.emplace_back(line.row, 0);
  for (const RankWaits& rank : phase.ranks) {
    split.step_us += rank.step_mean_us / count;
    for (std::size_t i = 0; i < rank.rows.size() && i < split.rows.size(); ++i)
      split.rows[i].second += rank.rows[i].mean_us / count;
  }
  return split;
}

}  // namespace

double WaitSplit::exposed_us() const {
  double us = 0;
  for (const auto& [row, time_us] : rows)
    if (row == key(runtime::WaitRow::kTransfer) || row == key(runtime::WaitRow::kSkew))
      us += time_us;
  return us;
}

std::vector<WaitSplit> wait_splits(const std::vector<SizeWaits>& waits) {
  std::vector<WaitSplit> splits;
  for (const char* kind : {"decode", "prefill"})
    for (const SizeWaits& size : waits)
      for (const WaitPhase& phase : size.report.phases)
        if (phase.kind == kind && !phase.ranks.empty() && phase.steps > 0)
          splits.push_back(split_of(size.ranks, phase));
  return splits;
}

std::string waits_split_table(const std::vector<WaitSplit>& splits) {
  if (splits.empty()) return "";
  std::vector<std::vector<std::string>> lines{{"steps", "ranks", "step us", "exposed comm."}};
  for (const auto& [row, us] : splits.front().rows) lines[0].push_back(words_of(row));
  for (const WaitSplit& split : splits) {
    const auto share = [&](double us) { return decimal(100 * us / split.step_us, 1) + " %"; };
    std::vector<std::string> line{split.kind, std::to_string(split.ranks),
                                  decimal(split.step_us, 1), share(split.exposed_us())};
    for (const auto& [row, us] : split.rows) line.push_back(share(us));
    lines.push_back(line);
  }
  return text_table(lines);
}

void add_rows(const std::string& model, const std::vector<WaitSplit>& splits,
              BenchResults& results) {
  for (const WaitSplit& split : splits) {
    const std::string name = concat(model, " tp", split.ranks, " ", split.kind, " steps");
    const auto add = [&](const std::string& metric, double us) {
      results.add({name, metric, "us", us, 0, 0, true, 1, "mean"});
    };
    add("step_us", split.step_us);
    add("exposed_communication_us", split.exposed_us());
    for (const auto& [row, us] : split.rows) add(row + "_us", us);
  }
}

std::vector<Chart> wait_charts(const std::vector<WaitSplit>& splits) {
  std::vector<Chart> charts;
  for (const WaitSplit& split : splits) {
    const std::string title = concat("Where a ", split.kind, " step goes");
    if (charts.empty() || charts.back().title != title) {
      charts.push_back({title, "ranks", "share of the step", {}, true, false, {}});
      for (const auto& [row, us] : split.rows)
        charts.back().series.push_back({words_of(row), {}, false});
    }
    Chart& chart = charts.back();
    chart.x_ticks.push_back(split.ranks);
    for (std::size_t i = 0; i < split.rows.size(); ++i)
      chart.series[i].points.push_back(
          {double(split.ranks), split.rows[i].second / split.step_us, 0, ""});
  }
  const auto is_small = [](const ChartSeries& series) {
    return std::all_of(series.points.begin(), series.points.end(),
                       [](const ChartPoint& point) { return point.y < kShownShare; });
  };
  for (Chart& chart : charts) std::erase_if(chart.series, is_small);
  return charts;
}

}  // namespace tandem::launch
