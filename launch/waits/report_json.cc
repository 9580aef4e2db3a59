// SPDX-License-Identifier: Apache-2.0

#include "kernels/device/error.h"
#include "launch/version.h"
#include "launch/waits/report.h"
#include "runtime/text_file.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

json::array lines_to_json(const std::vector<WaitLine>& lines, double step_us) {
  json::array list;
  for (const WaitLine& line : lines)
    list.push_back({{"row", line.row},
                    {"cause", line.cause},
                    {"mean_us", line.mean_us},
                    {"median_us", line.median_us},
                    {"share", step_us > 0 ? line.mean_us / step_us : 0.0}});
  return list;
}

std::vector<WaitLine> lines_from_json(const json::value& list) {
  std::vector<WaitLine> lines;
  for (const json::value& line : list.as_array())
    lines.push_back(
        {json::value_to<std::string>(line.at("row")), json::value_to<std::string>(line.at("cause")),
         line.at("mean_us").to_number<double>(), line.at("median_us").to_number<double>()});
  return lines;
}

json::object phase_to_json(const WaitPhase& phase) {
  json::array ranks;
  for (std::size_t r = 0; r < phase.ranks.size(); ++r) {
    const RankWaits& rank = phase.ranks[r];
    ranks.push_back({{"rank", r},
                     {"step_us",
                      {{"mean", rank.step_mean_us},
                       {"median", rank.step_median_us},
                       {"p99", rank.step_p99_us}}},
                     {"rows", lines_to_json(rank.rows, rank.step_mean_us)},
                     {"causes", lines_to_json(rank.causes, rank.step_mean_us)}});
  }
  return {{"kind", phase.kind},
          {"steps", phase.steps},
          {"rows_per_step", phase.rows_per_step},
          {"unstamped_step_median_us", phase.unstamped_step_median_us},
          {"ranks", std::move(ranks)}};
}

WaitPhase phase_from_json(const json::value& value) {
  WaitPhase phase;
  phase.kind = json::value_to<std::string>(value.at("kind"));
  phase.steps = value.at("steps").to_number<std::int64_t>();
  phase.rows_per_step = value.at("rows_per_step").to_number<double>();
  phase.unstamped_step_median_us = value.at("unstamped_step_median_us").to_number<double>();
  for (const json::value& rank : value.at("ranks").as_array()) {
    const json::value& step = rank.at("step_us");
    phase.ranks.push_back({step.at("mean").to_number<double>(),
                           step.at("median").to_number<double>(),
                           step.at("p99").to_number<double>(), lines_from_json(rank.at("rows")),
                           lines_from_json(rank.at("causes"))});
  }
  return phase;
}

}  // namespace

json::object to_json(const WaitsReport& report) {
  json::array ranks, phases;
  for (std::size_t r = 0; r < report.hosts.size(); ++r)
    ranks.push_back({{"rank", r},
                     {"host", report.hosts[r]},
                     {"device", report.devices[r]},
                     {"read_gb_per_s", report.ceilings[r].read_gb_per_s},
                     {"matmul_tflops", report.ceilings[r].matmul_tflops},
                     {"clock_uncertainty_us", report.clock_uncertainty_us[r]},
                     {"last_share", report.last_share[r]}});
  for (const WaitPhase& phase : report.phases) phases.push_back(phase_to_json(phase));
  return {{"waits", 1},
          {"model", report.model},
          {"commit", build_commit()},
          {"command", report.command},
          {"dropped_spans", report.dropped_spans},
          {"ranks", std::move(ranks)},
          {"phases", std::move(phases)}};
}

WaitsReport read_report(const std::string& file) {
  const auto text = runtime::read_text_file(file);
  TANDEM_REQUIRE(text, "cannot read ", file, "; name a file that `tandem waits --waits` wrote");
  try {
    const json::value document = json::parse(*text);
    TANDEM_REQUIRE(document.at("waits").to_number<int>() == 1, "another version");
    WaitsReport report;
    report.model = json::value_to<std::string>(document.at("model"));
    report.command = json::value_to<std::string>(document.at("command"));
    report.dropped_spans = document.at("dropped_spans").to_number<std::int64_t>();
    for (const json::value& rank : document.at("ranks").as_array()) {
      report.hosts.push_back(json::value_to<std::string>(rank.at("host")));
      report.devices.push_back(json::value_to<std::string>(rank.at("device")));
      report.ceilings.push_back({rank.at("read_gb_per_s").to_number<double>(),
                                 rank.at("matmul_tflops").to_number<double>()});
      report.clock_uncertainty_us.push_back(rank.at("clock_uncertainty_us").to_number<double>());
      report.last_share.push_back(rank.at("last_share").to_number<double>());
    }
    for (const json::value& phase : document.at("phases").as_array())
      report.phases.push_back(phase_from_json(phase));
    for (const WaitPhase& phase : report.phases)
      TANDEM_REQUIRE(phase.ranks.size() == report.hosts.size(), "ranks are missing");
    return report;
  } catch (const std::exception&) {
    throw ConfigError(concat(file,
                             " is no report of waits of this version; make one with tandem "
                             "waits --model MODEL --waits waits.json"));
  }
}

}  // namespace tandem::launch
