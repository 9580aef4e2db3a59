// SPDX-License-Identifier: Apache-2.0
#include "launch/waits/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "kernels/device/error.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

/// Rows below this share of the step on every rank are summed up in one line.
constexpr double kSmallShare = 0.005;

std::string time_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, us < 1000 ? "%.0f us" : "%.2f ms", us < 1000 ? us : us / 1000);
  return text;
}

std::string percent(double share, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %%", digits, 100 * share);
  return text;
}

std::string cell_text(double us, double step_us) {
  return time_text(us) + " " + percent(step_us > 0 ? us / step_us : 0, 1);
}

/// Rows with one cause need no name for it.
std::string line_title(const std::string& row, const std::string& cause) {
  const bool plain = cause.empty() || row == key(runtime::WaitRow::kIdle) ||
                     row == key(runtime::WaitRow::kMapping);
  return plain ? row_title(row) : concat(row_title(row), ": ", cause);
}

/// One row and cause over all ranks.
struct Entry {
  std::string row, cause;
  std::vector<double> us;  ///< Mean per step, by rank.
  double worst_share = 0;
};

std::vector<Entry> entries_of(const WaitPhase& phase) {
  std::map<std::pair<std::string, std::string>, Entry> entries;
  for (std::size_t r = 0; r < phase.ranks.size(); ++r)
    for (const WaitLine& line : phase.ranks[r].causes) {
      Entry& entry = entries[{line.row, line.cause}];
      entry.row = line.row;
      entry.cause = line.cause;
      entry.us.resize(phase.ranks.size());
      entry.us[r] = line.mean_us;
      entry.worst_share = std::max(entry.worst_share, line.mean_us / phase.ranks[r].step_mean_us);
    }
  std::vector<Entry> list;
  for (auto& [name, entry] : entries) list.push_back(std::move(entry));
  std::stable_sort(list.begin(), list.end(),
                   [](const Entry& a, const Entry& b) { return a.worst_share > b.worst_share; });
  return list;
}

std::string rows_text(const WaitPhase& phase) {
  return concat(std::round(phase.rows_per_step * 10) / 10,
                phase.rows_per_step == 1 ? " row" : " rows");
}

std::string phase_head(const WaitPhase& phase) {
  const RankWaits& first = phase.ranks.front();
  std::string text =
      concat(phase.kind, ": ", phase.steps, phase.steps == 1 ? " step" : " steps", " of ",
             time_text(first.step_mean_us), " (median ", time_text(first.step_median_us), ", p99 ",
             time_text(first.step_p99_us), "), ", rows_text(phase), " each\n");
  if (phase.unstamped_step_median_us > 0)
    text += concat("  steps without stamps: median ", time_text(phase.unstamped_step_median_us),
                   " (measuring cost ",
                   percent(first.step_median_us / phase.unstamped_step_median_us - 1, 1), ")\n");
  return text;
}

std::vector<std::string> words(const WaitPhase& phase, const std::string& title,
                               const std::vector<double>& us, const std::string& what) {
  std::vector<std::string> line{title};
  for (std::size_t r = 0; r < us.size(); ++r)
    line.push_back(cell_text(us[r], phase.ranks[r].step_mean_us));
  line.push_back(what);
  return line;
}

std::string phase_table(const WaitsReport& report, const WaitPhase& phase) {
  std::vector<std::vector<std::string>> lines;
  lines.push_back({"waits"});
  for (std::size_t r = 0; r < phase.ranks.size(); ++r) lines[0].push_back(concat("rank ", r));
  lines[0].push_back("what would help");
  const std::vector<double> none(phase.ranks.size());
  std::vector<double> floor = none, small = none, unexplained = none;
  int num_small = 0;
  for (const Entry& entry : entries_of(phase)) {
    const bool at_ceiling = entry.row == key(runtime::WaitRow::kFloor);
    if (entry.row == key(runtime::WaitRow::kUnexplained)) {
      for (std::size_t r = 0; r < unexplained.size(); ++r) unexplained[r] += entry.us[r];
      continue;
    }
    if (!at_ceiling && entry.worst_share >= kSmallShare) {
      const std::string title = line_title(entry.row, entry.cause);
      lines.push_back(
          words(phase, title, entry.us, advice(report, phase.kind, entry.row, entry.cause)));
      continue;
    }
    num_small += at_ceiling ? 0 : 1;
    std::vector<double>& sum = at_ceiling ? floor : small;
    for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += entry.us[r];
  }
  if (num_small > 0) lines.push_back(words(phase, concat(num_small, " smaller rows"), small, ""));
  lines.push_back(words(phase, "unexplained", unexplained, ""));
  lines.push_back(words(phase, row_title(key(runtime::WaitRow::kFloor)), floor,
                        "not a wait: fewer bytes or operations"));
  std::vector<double> steps;
  for (const RankWaits& rank : phase.ranks) steps.push_back(rank.step_mean_us);
  lines.push_back(words(phase, "step", steps, ""));
  return text_table(lines);
}

const WaitPhase* find_phase(const WaitsReport& report, const std::string& kind) {
  for (const WaitPhase& phase : report.phases)
    if (phase.kind == kind) return &phase;
  return nullptr;
}

/// The slowest rank's time of every row and cause.
std::map<std::pair<std::string, std::string>, double> worst_us(const WaitPhase& phase) {
  std::map<std::pair<std::string, std::string>, double> worst;
  for (const Entry& entry : entries_of(phase))
    worst[{entry.row, entry.cause}] = *std::max_element(entry.us.begin(), entry.us.end());
  return worst;
}

std::string compare_phase(const WaitPhase& before, const WaitPhase& after) {
  auto old_us = worst_us(before);
  auto new_us = worst_us(after);
  struct Change {
    std::string title;
    double before = 0, after = 0;
  };
  std::vector<Change> changes;
  for (const auto& [name, us] : old_us) new_us.try_emplace(name, 0);
  for (const auto& [name, us] : new_us)
    changes.push_back(
        {line_title(name.first, name.second), old_us.contains(name) ? old_us[name] : 0, us});
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::abs(a.after - a.before) > std::abs(b.after - b.before);
  });
  const auto longest = [](const WaitPhase& phase) {
    double us = 0;
    for (const RankWaits& rank : phase.ranks) us = std::max(us, rank.step_mean_us);
    return us;
  };
  const double step_us = longest(before);
  changes.insert(changes.begin(), {"step", step_us, longest(after)});
  std::vector<std::vector<std::string>> lines{
      {before.kind, "before", "after", "change", "of a step before"}};
  for (const Change& change : changes) {
    const double delta = change.after - change.before;
    if (std::abs(delta) < kSmallShare * step_us && change.title != "step") continue;
    const std::string sign = delta < 0 ? "-" : "+";
    lines.push_back({change.title, time_text(change.before), time_text(change.after),
                     sign + time_text(std::abs(delta)),
                     sign + percent(std::abs(delta) / step_us, 1)});
  }
  return text_table(lines);
}

}  // namespace

std::string waits_table(const WaitsReport& report) {
  std::string text;
  for (const WaitPhase& phase : report.phases)
    text += (text.empty() ? "" : "\n") + phase_head(phase) + phase_table(report, phase);
  if (report.phases.empty()) text = "no step was recorded on all ranks\n";
  if (report.dropped_spans > 0)
    text += concat("the recorder was full: ", report.dropped_spans,
                   " later spans are missing, so later steps are not in this report\n");
  return text;
}

std::string compare_waits(const WaitsReport& before, const WaitsReport& after) {
  std::string text, unequal;
  if (before.model != after.model)
    unequal += concat("\nmodel before: ", before.model, ", after: ", after.model, "\n");
  for (const WaitPhase& phase : before.phases)
    if (const WaitPhase* other = find_phase(after, phase.kind)) {
      text += (text.empty() ? "" : "\n") + compare_phase(phase, *other);
      const std::string rows = rows_text(phase), now = rows_text(*other);
      if (rows != now)
        unequal += concat("\na ", phase.kind, " step before: ", rows, ", after: ", now, "\n");
    }
  TANDEM_REQUIRE(!text.empty(),
                 "the two reports have no kind of step in common; compare reports of equal work");
  text += unequal;
  if (before.hosts.size() != after.hosts.size())
    text += concat("\nranks before: ", before.hosts.size(), ", after: ", after.hosts.size(),
                   "; of each row the slowest rank's time is shown\n");
  return text;
}

}  // namespace tandem::launch
