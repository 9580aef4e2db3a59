// SPDX-License-Identifier: Apache-2.0
#include "runtime/waits/attribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "kernels/device/error.h"
#include "runtime/waits/timeline.h"

namespace tandem::runtime {
namespace {

constexpr std::array<const char*, kNumWaitRows> kKeys = {
    "compute_at_ceiling", "compute_above_ceiling", "waiting_for_tiles",      "fences", "transfer",
    "rank_skew",          "launch_gaps",           "allocation_and_mapping", "host",   "idle",
    "unexplained"};

struct Bounds {
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// One rank's log with its instants and the bounds of its steps.
struct RankView {
  const RankLog* log = nullptr;
  std::vector<Piece> pieces;
  std::map<std::int32_t, Bounds> steps;
  std::map<std::int32_t, std::vector<std::size_t>> collectives;  ///< Spans by step, in order.
  std::vector<double> exposed_ns;                                ///< By span: its pieces' sum.
};

RankView make_view(const RankLog& log) {
  RankView view;
  view.log = &log;
  view.pieces = rank_timeline(log.spans, log.synchronous);
  view.exposed_ns.resize(log.spans.size());
  for (const Piece& piece : view.pieces)
    view.exposed_ns[piece.span] += static_cast<double>(piece.size_ns());
  std::map<std::int32_t, std::int64_t> submits;
  for (std::size_t i = 0; i < log.spans.size(); ++i) {
    const TimeSpan& span = log.spans[i];
    if (!is_op(span.activity)) continue;
    if (is_collective(span.activity)) view.collectives[span.step].push_back(i);
    const auto [entry, fresh] = view.steps.try_emplace(span.step, Bounds{span.begin_ns, 0});
    entry->second.end_ns = std::max(entry->second.end_ns, span.end_ns);
  }
  return view;
}

/// A step begins where the one before it ended; the first one when this rank began to record, but
/// not before rank 0 did.
void join_steps(RankView& view, std::int64_t start_ns) {
  if (view.steps.empty()) return;
  std::int64_t first_ns = view.log->spans.front().begin_ns;
  for (const TimeSpan& span : view.log->spans) first_ns = std::min(first_ns, span.begin_ns);
  std::int64_t end_ns = std::max(start_ns, first_ns);
  std::int32_t before = view.steps.begin()->first - 1;
  for (auto& [step, bounds] : view.steps) {
    if (step == before + 1) bounds.begin_ns = std::min(end_ns, bounds.end_ns);
    end_ns = bounds.end_ns;
    before = step;
  }
}

/// Transfer of every collective of a step: the smallest wait over ranks. Empty when the ranks do
/// not have the same collectives.
std::vector<double> transfers(const std::vector<RankView>& views, std::int32_t step,
                              std::vector<Arrivals>& arrivals) {
  std::vector<double> smallest;
  for (const RankView& view : views) {
    const auto entry = view.collectives.find(step);
    const std::size_t count = entry == view.collectives.end() ? 0 : entry->second.size();
    if (&view == &views.front()) smallest.assign(count, INFINITY);
    if (count != smallest.size()) return {};
    for (std::size_t k = 0; k < count; ++k)
      smallest[k] = std::min(smallest[k], view.exposed_ns[entry->second[k]]);
  }
  if (views.size() < 2) return smallest;
  for (std::size_t k = 0; k < smallest.size(); ++k)
    for (std::size_t r = 0; r < views.size(); ++r) {
      ++arrivals[r].collectives;
      if (views[r].exposed_ns[views[r].collectives.at(step)[k]] == smallest[k]) {
        ++arrivals[r].last;
      }
    }
  return smallest;
}

void add(std::vector<WaitCell>& cells, WaitRow row, Activity activity, double ns) {
  if (ns <= 0) return;
  for (WaitCell& cell : cells)
    if (cell.row == row && cell.activity == activity) {
      cell.ns += ns;
      return;
    }
  cells.push_back({row, activity, ns});
}

double floor_ns(const TimeSpan& span, const RankCeilings& ceilings) {
  const double memory = ceilings.read_gb_per_s > 0 ? span.bytes / ceilings.read_gb_per_s : 0;
  const double arithmetic =
      ceilings.matmul_tflops > 0 ? span.flops / ceilings.matmul_tflops / 1e3 : 0;
  return std::max(memory, arithmetic);
}

WaitRow phase_row(Activity activity) {
  switch (activity) {
    case Activity::kSubmit:
    case Activity::kCollect:
      return WaitRow::kLaunch;
    case Activity::kMap:
      return WaitRow::kMapping;
    case Activity::kIdle:
      return WaitRow::kIdle;
    default:
      return WaitRow::kHost;
  }
}

/// Of the ops of one activity: their time, and what of it is known.
struct OpTime {
  double all_ns = 0, floor_ns = 0, stamps_ns = 0, fences_ns = 0, tiles_ns = 0;
};

/// Gives the instants of one step of one rank to rows.
class StepAttributor {
 public:
  StepAttributor(const RankView& rank0, const RankView& view, std::int32_t step,
                 std::vector<double> transfers)
      : rank0_(rank0), view_(view), step_(step), transfers_(std::move(transfers)) {
    const auto entry = view.collectives.find(step);
    if (entry == view.collectives.end()) return;
    for (std::size_t k = 0; k < entry->second.size(); ++k) order_[entry->second[k]] = k;
  }

  std::vector<WaitCell> run(const Bounds& bounds) {
    auto piece =
        std::lower_bound(view_.pieces.begin(), view_.pieces.end(), bounds.begin_ns,
                         [](const Piece& p, std::int64_t begin) { return p.end_ns <= begin; });
    std::int64_t cursor = bounds.begin_ns;
    std::map<std::size_t, double> ops;
    double layers_ns = 0;
    for (; piece != view_.pieces.end() && piece->begin_ns < bounds.end_ns; ++piece) {
      const std::int64_t begin = std::max(piece->begin_ns, bounds.begin_ns);
      const std::int64_t end = std::min(piece->end_ns, bounds.end_ns);
      add(cells_, WaitRow::kUnexplained, Activity::kCount, static_cast<double>(begin - cursor));
      cursor = end;
      const TimeSpan& span = view_.log->spans[piece->span];
      if (span.activity == Activity::kLayers)
        layers_ns += static_cast<double>(end - begin);
      else if (is_op(span.activity))
        ops[piece->span] += static_cast<double>(end - begin);
      else if (span.activity == Activity::kAwaitPlan)
        wait_for_rank0(begin, end);
      else
        add(cells_, phase_row(span.activity), span.activity, static_cast<double>(end - begin));
    }
    add(cells_, WaitRow::kUnexplained, Activity::kCount,
        static_cast<double>(bounds.end_ns - cursor));
    for (const auto& [index, ns] : ops) add_op(index, ns);
    share_op_times();
    share_layers(layers_ns);
    for (const WaitCell& cell : layer_cells_) add(cells_, cell.row, cell.activity, cell.ns);
    return std::move(cells_);
  }

 private:
  void add_op(std::size_t index, double ns) {
    const TimeSpan& span = view_.log->spans[index];
    std::vector<WaitCell>& cells = span.layer >= 0 ? layer_cells_ : cells_;
    if (is_collective(span.activity)) {
      const auto order = order_.find(index);
      const double transfer = order != order_.end() && order->second < transfers_.size()
                                  ? std::min(ns, transfers_[order->second])
                                  : ns;
      add(cells, WaitRow::kTransfer, span.activity, transfer);
      add(cells, WaitRow::kSkew, span.activity, ns - transfer);
      return;
    }
    if (span.activity == Activity::kStamps)
      return add(cells_, WaitRow::kFences, Activity::kStamps, ns);
    OpTime& time = op_times_[{span.activity, span.layer >= 0}];
    time.all_ns += ns;
    time.floor_ns += floor_ns(span, view_.log->ceilings);
    time.stamps_ns += span.stamps * double{span.fence_ns};
    time.fences_ns += span.kernels * double{span.fence_ns};
    time.tiles_ns += span.tile_share * ns;
  }

  /// An activity's ops together: one that took less than what is known of it makes up for another.
  void share_op_times() {
    for (const auto& [key, time] : op_times_) {
      const auto& [activity, in_layer] = key;
      std::vector<WaitCell>& cells = in_layer ? layer_cells_ : cells_;
      double left = time.all_ns;
      const auto give = [&](std::vector<WaitCell>& to, WaitRow row, Activity cause, double wanted) {
        const double given = std::min(left, wanted);
        add(to, row, cause, given);
        left -= given;
      };
      give(cells, WaitRow::kFloor, activity, time.floor_ns);
      // Stamps are in no step that is not measured: their ends do not grow with the layers.
      give(cells_, WaitRow::kFences, Activity::kStamps, time.stamps_ns);
      give(cells, WaitRow::kFences, Activity::kCount, time.fences_ns);
      give(cells, WaitRow::kTiles, activity, time.tiles_ns);
      add(cells, WaitRow::kAbove, activity, left);
    }
  }

  /// Layers without stamps went like those with stamps.
  void share_layers(double ns) {
    double stamped = 0;
    for (const WaitCell& cell : layer_cells_) stamped += cell.ns;
    if (stamped <= 0) return add(cells_, WaitRow::kUnexplained, Activity::kLayers, ns);
    for (WaitCell& cell : layer_cells_) cell.ns *= 1 + ns / stamped;
  }

  /// This rank waits for a plan: for what rank 0 did then. When rank 0 was at the step of that
  /// plan already, the plan was on its way.
  void wait_for_rank0(std::int64_t begin, std::int64_t end) {
    const auto& pieces = rank0_.pieces;
    auto piece = std::lower_bound(pieces.begin(), pieces.end(), begin,
                                  [](const Piece& p, std::int64_t at) { return p.end_ns <= at; });
    std::int64_t cursor = begin;
    for (; piece != pieces.end() && piece->begin_ns < end; ++piece) {
      const std::int64_t from = std::max(piece->begin_ns, begin);
      const std::int64_t to = std::min(piece->end_ns, end);
      add(cells_, WaitRow::kUnexplained, Activity::kAwaitPlan, static_cast<double>(from - cursor));
      cursor = to;
      const TimeSpan& span = rank0_.log->spans[piece->span];
      const double ns = static_cast<double>(to - from);
      if (is_op(span.activity) || span.activity == Activity::kSubmit ||
          span.activity == Activity::kCollect) {
        const bool behind = span.step < step_;
        add(cells_, behind ? WaitRow::kSkew : WaitRow::kHost, Activity::kAwaitPlan, ns);
      } else {
        add(cells_, phase_row(span.activity), span.activity, ns);
      }
    }
    add(cells_, WaitRow::kUnexplained, Activity::kAwaitPlan, static_cast<double>(end - cursor));
  }

  const RankView& rank0_;
  const RankView& view_;
  std::int32_t step_;
  std::vector<double> transfers_;
  std::map<std::size_t, std::size_t> order_;  ///< Span of a collective -> its number in the step.
  std::vector<WaitCell> cells_, layer_cells_;
  std::map<std::pair<Activity, bool>, OpTime> op_times_;  ///< By whether they are in layers.
};

}  // namespace

const char* key(WaitRow row) { return kKeys[static_cast<std::size_t>(row)]; }

double AttributedStep::ns(WaitRow row) const {
  double sum = 0;
  for (const WaitCell& cell : cells)
    if (cell.row == row) sum += cell.ns;
  return sum;
}

double AttributedStep::ns(WaitRow row, Activity activity) const {
  for (const WaitCell& cell : cells)
    if (cell.row == row && cell.activity == activity) return cell.ns;
  return 0;
}

Attribution attribute(const std::vector<RankLog>& logs) {
  Attribution result;
  result.steps.resize(logs.size());
  result.arrivals.resize(logs.size());
  if (logs.empty() || logs.front().spans.empty()) return result;
  std::vector<RankView> views;
  for (const RankLog& log : logs) views.push_back(make_view(log));
  std::int64_t start_ns = INT64_MAX;
  for (const TimeSpan& span : logs.front().spans) start_ns = std::min(start_ns, span.begin_ns);
  for (RankView& view : views) join_steps(view, start_ns);
  for (const StepRecord& record : logs.front().steps) {
    const auto known = [&](const RankView& view) { return view.steps.contains(record.step); };
    if (!std::all_of(views.begin(), views.end(), known)) continue;
    const std::vector<double> smallest = transfers(views, record.step, result.arrivals);
    for (std::size_t r = 0; r < views.size(); ++r) {
      const Bounds& bounds = views[r].steps.at(record.step);
      StepAttributor attributor(views.front(), views[r], record.step, smallest);
      result.steps[r].push_back({record, bounds.begin_ns, bounds.end_ns, attributor.run(bounds)});
    }
  }
  return result;
}

}  // namespace tandem::runtime
