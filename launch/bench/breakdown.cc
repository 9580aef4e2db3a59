// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/breakdown.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/device/error.h"
#include "launch/text_table.h"
#include "runtime/waits/timeline.h"

namespace tandem::launch {
namespace {

/// One activity's part of one step, inside or outside of layers.
struct Part {
  double kernels = 0, bytes = 0, flops = 0, us = 0;
};

struct Step {
  std::map<Activity, Part> layer, other;
  std::set<int> layers;  ///< Those whose ops were timed.
};

double floor_us(const BreakdownLine& line, const Ceilings& ceilings) {
  const double read = ceilings.read_gb_per_s > 0 ? line.bytes / ceilings.read_gb_per_s / 1e3 : 0;
  return std::max(read, ceilings.matmul_tflops > 0 ? line.flops / ceilings.matmul_tflops / 1e6 : 0);
}

/// The steps that are wanted, by number, with what they spent.
std::map<std::int32_t, Step> collect(const Recorder& recorder, const RecorderMark& mark,
                                     std::int32_t decode_rows, std::int32_t prefill_tokens,
                                     bool synchronous) {
  std::map<std::int32_t, Step> steps;
  for (std::size_t i = mark.steps; i < recorder.steps().size(); ++i) {
    const StepRecord& step = recorder.steps()[i];
    if (step.stamped != 0 && step.decode_rows == decode_rows &&
        step.prefill_tokens == prefill_tokens)
      steps[step.step];
  }
  const std::vector<TimeSpan> spans(
      recorder.spans().begin() + static_cast<std::ptrdiff_t>(mark.spans), recorder.spans().end());
  std::vector<double> us(spans.size());
  for (const runtime::Piece& piece : runtime::rank_timeline(spans, synchronous))
    us[piece.span] += static_cast<double>(piece.size_ns()) / 1e3;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const TimeSpan& span = spans[i];
    const auto found = steps.find(span.step);
    if (found == steps.end() || !is_op(span.activity) || span.activity == Activity::kLayers ||
        span.activity == Activity::kStamps)
      continue;
    Step& step = found->second;
    if (span.layer >= 0) step.layers.insert(span.layer);
    Part& part = (span.layer >= 0 ? step.layer : step.other)[span.activity];
    part.kernels += span.kernels;
    part.bytes += span.bytes;
    part.flops += span.flops;
    part.us += std::max(0.0, us[i] - span.stamps * double{span.fence_ns} / 1e3);
  }
  return steps;
}

std::vector<BreakdownLine> lines_of(const std::map<std::int32_t, Step>& steps, bool of_layers,
                                    const Ceilings& ceilings) {
  std::map<Activity, std::vector<Part>> parts;
  for (const auto& [number, step] : steps) {
    const double count = of_layers ? static_cast<double>(step.layers.size()) : 1.0;
    for (const auto& [activity, part] : of_layers ? step.layer : step.other)
      parts[activity].push_back(
          {part.kernels / count, part.bytes / count, part.flops / count, part.us / count});
  }
  std::vector<BreakdownLine> lines;
  for (const auto& [activity, samples] : parts) {
    const auto median = [&](double Part::*member) {
      std::vector<double> values;
      for (const Part& part : samples) values.push_back(part.*member);
      return median_spread(std::move(values));
    };
    BreakdownLine line{name(activity), median(&Part::kernels).median, median(&Part::bytes).median,
                       median(&Part::flops).median};
    const MedianSpread us = median(&Part::us);
    line.us = us.median;
    line.spread_us = us.spread;
    if (!is_collective(activity)) line.floor_us = floor_us(line, ceilings);
    lines.push_back(line);
  }
  return lines;
}

BreakdownLine sum(const std::string& name, const std::vector<BreakdownLine>& lines) {
  BreakdownLine total{name};
  for (const BreakdownLine& line : lines) {
    total.kernels += line.kernels;
    total.bytes += line.floor_us > 0 ? line.bytes : 0;
    total.flops += line.flops;
    total.us += line.us;
    total.floor_us += line.floor_us;
  }
  return total;
}

std::vector<std::string> words(const std::string& indent, const BreakdownLine& line) {
  const bool counted = line.kernels > 0, moved = line.bytes > 0 && line.us > 0;
  return {
      indent + line.op,
      counted ? decimal(line.kernels, line.kernels < 10 && line.kernels != int(line.kernels)) : "-",
      line.bytes > 0 ? decimal(line.bytes / 1e6, line.bytes < 1e7 ? 3 : 1) : "-",
      decimal(line.us, 1),
      moved ? decimal(line.bytes / line.us / 1e3, 1) : "-",
      line.flops > 0 && line.us > 0 ? decimal(line.flops / line.us / 1e6, 2) : "-",
      line.floor_us > 0 && line.us > 0 ? decimal(100 * line.floor_us / line.us, 1) + " %" : "-"};
}

}  // namespace

BreakdownLine Breakdown::whole() const {
  std::vector<BreakdownLine> all = step;
  const auto times = static_cast<double>(layers);
  for (BreakdownLine line : layer) {
    line.kernels *= times;
    line.bytes *= times;
    line.flops *= times;
    line.us *= times;
    line.floor_us *= times;
    all.push_back(line);
  }
  return sum("all ops of a step", all);
}

Breakdown break_down(const Recorder& recorder, const RecorderMark& mark, std::int32_t decode_rows,
                     std::int32_t prefill_tokens, std::size_t layers, bool synchronous,
                     const Ceilings& ceilings) {
  const auto steps = collect(recorder, mark, decode_rows, prefill_tokens, synchronous);
  TANDEM_ASSERT(!steps.empty(), "no step of ", decode_rows, " rows and ", prefill_tokens,
                " prompt tokens was recorded");
  return {steps.size(), layers, lines_of(steps, true, ceilings), lines_of(steps, false, ceilings)};
}

std::string breakdown_table(const std::string& name, const Breakdown& breakdown) {
  std::vector<std::vector<std::string>> rows{
      {"op", "kernels", "MB", "us", "GB/s", "TFLOP/s", "of the ceiling"}};
  rows.push_back({concat("in each of ", breakdown.layers, " layers:")});
  for (const BreakdownLine& line : breakdown.layer) rows.push_back(words("  ", line));
  rows.push_back(words("  ", sum("layer", breakdown.layer)));
  rows.push_back({"once a step:"});
  for (const BreakdownLine& line : breakdown.step) rows.push_back(words("  ", line));
  rows.push_back(words("", breakdown.whole()));
  std::string table = text_table(rows);
  table.pop_back();
  return concat("\n", name, ", rank 0, median of ", breakdown.steps,
                breakdown.steps == 1 ? " step\n" : " steps\n", table);
}

void add_rows(const std::string& name, const Breakdown& breakdown, BenchResults& results) {
  const auto add = [&](const std::string& where, const BreakdownLine& line) {
    const std::string full = concat(name, " ", where, " ", line.op);
    results.add_detail(
        {full, "us", "us", line.us, line.spread_us, line.floor_us, true, breakdown.steps});
    results.add_detail({full, "bytes", "bytes", line.bytes, 0, 0, true, breakdown.steps});
    if (line.kernels > 0)
      results.add_detail({full, "kernels", "kernels", line.kernels, 0, 0, true, breakdown.steps});
  };
  for (const BreakdownLine& line : breakdown.layer) add("layer", line);
  for (const BreakdownLine& line : breakdown.step) add("step", line);
}

}  // namespace tandem::launch
