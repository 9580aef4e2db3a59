// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/results.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "kernels/device/device_info.h"
#include "kernels/device/error.h"
#include "launch/text_table.h"
#include "launch/version.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string dotted(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

json::object machine() {
  const DeviceReport report = query_devices();
  json::object facts{{"gpu", nullptr},    {"gpus", report.devices.size()},
                     {"driver", nullptr}, {"cuda", nullptr},
                     {"nccl", nullptr},   {"cpu", cpu_model()}};
  if (!report.devices.empty()) {
    facts["gpu"] = report.devices.front().name;
    facts["driver"] = dotted(report.driver_version);
    facts["cuda"] = dotted(report.runtime_version);
  }
  return facts;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

std::string decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace

BenchResults::BenchResults(std::string bench, std::string command)
    : bench_(std::move(bench)), command_(std::move(command)) {
  lines_.push_back({"case", "metric", "median", "spread", "ceiling", "share"});
}

void BenchResults::add(const std::string& name, const std::string& metric, const std::string& unit,
                       std::vector<double> samples, double ceiling, bool lower_is_better) {
  TANDEM_ASSERT(!samples.empty(), name);
  std::sort(samples.begin(), samples.end());
  const double value = samples[samples.size() / 2];
  const double spread = (samples[samples.size() * 3 / 4] - samples[samples.size() / 4]) / 2;
  json::object row{{"case", name},          {"metric", metric},       {"unit", unit},
                   {"statistic", "median"}, {"runs", samples.size()}, {"value", value},
                   {"spread", spread},      {"ceiling", nullptr},     {"share", nullptr}};
  std::vector<std::string> line{name, metric, decimal(value, 3) + " " + unit, decimal(spread, 3),
                                "",   ""};
  if (ceiling > 0) {
    const double share = lower_is_better ? ceiling / value : value / ceiling;
    row["ceiling"] = ceiling;
    row["share"] = share;
    line[4] = decimal(ceiling, 3);
    line[5] = decimal(100 * share, 1) + " %";
  }
  rows_.push_back(std::move(row));
  lines_.push_back(std::move(line));
}

std::string BenchResults::table() const { return text_table(lines_); }

json::object BenchResults::json() const {
  return {{"bench", bench_}, {"machine", machine()}, {"commit", build_commit()},
          {"date", today()}, {"command", command_},  {"rows", rows_}};
}

void BenchResults::write(const std::string& path) const {
  const std::string text = json::serialize(json()) + "\n";
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  file << text;
  TANDEM_REQUIRE(file.flush(), "--json ", path, " cannot be written; name a writable file, or -");
}

}  // namespace tandem::launch
