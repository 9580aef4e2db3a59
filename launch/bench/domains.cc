// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/domains.h"

#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include "kernels/device/device_info.h"
#include "kernels/device/error.h"
#include "launch/bench/domains_data.h"
#include "launch/bench/results.h"
#include "launch/command_line.h"
#include "launch/output_file.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;
using bench::DomainsPair;
using bench::DomainsVerdict;

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

std::string verdict_text(const DomainsVerdict& verdict) {
  return verdict.effect ? concat("removed ", std::lround(100 * verdict.removed), " %")
                        : std::string("no effect seen");
}

/// Empty, or how many samples do not prove that both ran at once and on SMs of their own.
std::string proof_text(const DomainsPair& pair) {
  if (pair.not_overlapped + pair.shared_sm == 0) return "at once, own SMs";
  return concat(pair.not_overlapped, " not at once, ", pair.shared_sm, " on a shared SM");
}

std::vector<std::string> line_of(const DomainsPair& pair) {
  const DomainsVerdict verdict = judge(pair);
  return {pair.victim,
          pair.aggressor,
          pair.unit,
          short_number(verdict.idle),
          short_number(verdict.same),
          short_number(verdict.separate),
          short_number(verdict.spread),
          short_number(mean(pair.traffic_same)),
          short_number(mean(pair.traffic_separate)),
          verdict_text(verdict),
          proof_text(pair)};
}

void add_rows(BenchResults& results, const bench::DomainsData& data) {
  for (const DomainsPair& pair : data.pairs) {
    const std::string name = concat(pair.victim, " beside ", pair.aggressor);
    const DomainsVerdict verdict = judge(pair);
    results.add(name, "idle", pair.unit, pair.idle, 0, true);
    results.add(name, "same_domain", pair.unit, pair.same, 0, true);
    results.add(name, "separate_domains", pair.unit, pair.separate, 0, true);
    results.add(name, "aggressor_same_domain", "GB/s", pair.traffic_same, 0, false);
    results.add(name, "aggressor_separate_domains", "GB/s", pair.traffic_separate, 0, false);
    results.add(name, "samples_not_at_once", "samples", {static_cast<double>(pair.not_overlapped)},
                0, true);
    results.add(name, "samples_on_a_shared_sm", "samples", {static_cast<double>(pair.shared_sm)}, 0,
                true);
    if (verdict.effect) results.add(name, "removed", "share", {verdict.removed}, 0, false);
  }
  for (const bench::DomainsFact& fact : data.facts)
    results.add(fact.name, fact.metric, fact.unit, fact.values, 0, true);
}

struct Options {
  bench::DomainsOptions measure;
  std::string json, svg;
};

std::optional<Options> parse(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  po::options_description description("usage: tandem bench domains [options]");
  description.add_options()(
      "only", po::value(&options.measure.only)->multitoken(),
      "parts of names: only victims or aggressors that contain one are measured")(
      "num-iters", po::value(&options.measure.repeats)->default_value(options.measure.repeats),
      "interleaved repeats of each cell, at least 30 for a result")(
      "seconds", po::value(&options.measure.seconds)->default_value(options.measure.seconds),
      "no pair is begun after this long")("json", po::value(&options.json),
                                          "write the results to this file; - is standard output")(
      "svg", po::value(&options.svg), "draw the results into this file")("help,h", "this text");
  if (!parse_or_help(ranks.first(), "bench domains", arguments, description)) return std::nullopt;
  TANDEM_REQUIRE(ranks.control.size() == 1,
                 "bench domains is one process that uses up to two GPUs: run it without mpirun, "
                 "tandem bench domains");
  TANDEM_REQUIRE(options.measure.repeats > 0, "--num-iters must be at least 1, not ",
                 options.measure.repeats);
  return options;
}

}  // namespace

int run_bench_domains(Ranks& ranks, const std::vector<std::string>& arguments) {
  auto options = parse(ranks, arguments);
  if (!options) return 0;
  check_outputs({{"--json", options->json}, {"--svg", options->svg}});
  options->measure.progress = [](const DomainsPair& pair) {
    std::fprintf(stderr, "%s beside %s: %s\n", pair.victim.c_str(), pair.aggressor.c_str(),
                 verdict_text(judge(pair)).c_str());
  };
  const bench::DomainsData data = bench::measure_domains(options->measure);
  BenchResults results("domains", command_text(ranks, "bench domains", arguments));
  add_rows(results, data);
  std::vector<std::vector<std::string>> lines{{"victim", "aggressor", "unit", "idle", "same",
                                               "separate", "spread", "GB/s same", "GB/s separate",
                                               "separation", "proof"}};
  for (const DomainsPair& pair : data.pairs) lines.push_back(line_of(pair));
  std::string text = text_table(lines) + "\n";
  for (const bench::DomainsFact& fact : data.facts)
    text += concat(fact.name, ": ", short_number(mean(fact.values)), " ", fact.unit, " (",
                   fact.metric, ")\n");
  for (const std::string& note : data.notes) text += note + "\n";
  std::fputs(text.c_str(), options->json == "-" ? stderr : stdout);
  if (!options->json.empty()) results.write(options->json);
  if (options->svg.empty()) return 0;
  const DeviceReport report = query_devices();
  write_text_file(
      "--svg", options->svg,
      bench::domains_svg(data, report.devices.empty() ? "" : report.devices.front().name));
  return 0;
}

}  // namespace tandem::launch
