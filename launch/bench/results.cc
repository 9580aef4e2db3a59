// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/results.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "kernels/device/device_info.h"
#include "kernels/device/error.h"
#include "launch/output_file.h"
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

json::object machine(int nccl_version) {
  const DeviceReport report = query_devices();
  json::object facts{{"gpu", nullptr},    {"gpus", report.devices.size()},
                     {"driver", nullptr}, {"cuda", nullptr},
                     {"nccl", nullptr},   {"cpu", cpu_model()}};
  if (!report.devices.empty()) {
    facts["gpu"] = report.devices.front().name;
    facts["driver"] = dotted(report.driver_version);
    facts["cuda"] = dotted(report.runtime_version);
  }
  if (nccl_version > 0)
    facts["nccl"] =
        concat(nccl_version / 10000, '.', nccl_version % 10000 / 100, '.', nccl_version % 100);
  return facts;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

/// Six digits: what a measurement is worth at most.
double rounded(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

}  // namespace

std::string short_name(DType type) {
  return type == DType::kBF16 ? "bf16" : type == DType::kF16 ? "f16" : "f32";
}

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

MedianSpread median_spread(std::vector<double> samples) {
  TANDEM_ASSERT(!samples.empty(), "no samples");
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2],
          (samples[samples.size() * 3 / 4] - samples[samples.size() / 4]) / 2};
}

BenchResults::BenchResults(std::string bench, std::string command)
    : bench_(std::move(bench)), command_(std::move(command)) {
  lines_.push_back({"case", "metric", "statistic", "value", "spread", "ceiling", "share"});
}

void BenchResults::add_detail(const ResultRow& row) {
  const auto listed = lines_.size();
  add(row);
  lines_.resize(listed);
}

void BenchResults::add(const ResultRow& row) {
  json::object object{{"case", row.name},
                      {"metric", row.metric},
                      {"unit", row.unit},
                      {"statistic", row.statistic},
                      {"runs", row.runs},
                      {"value", rounded(row.value)},
                      {"spread", rounded(row.spread)},
                      {"ceiling", nullptr},
                      {"share", nullptr}};
  std::vector<std::string> line{row.name,
                                row.metric,
                                row.statistic,
                                decimal(row.value, 3) + " " + row.unit,
                                row.spread > 0 ? decimal(row.spread, 3) : "",
                                "",
                                ""};
  if (row.ceiling > 0) {
    const double share = row.lower_is_better ? row.ceiling / row.value : row.value / row.ceiling;
    object["ceiling"] = rounded(row.ceiling);
    object["share"] = rounded(share);
    line[5] = decimal(row.ceiling, 3);
    line[6] = decimal(100 * share, 1) + " %";
  }
  if (echo_)
    std::fprintf(stderr, "%-64s %-22s %-6s %10.4g +- %.2g %s\n", row.name.c_str(),
                 row.metric.c_str(), row.statistic.c_str(), row.value, row.spread,
                 row.unit.c_str());
  rows_.push_back(std::move(object));
  lines_.push_back(std::move(line));
}

void BenchResults::add(const std::string& name, const std::string& metric, const std::string& unit,
                       std::vector<double> samples, double ceiling, bool lower_is_better) {
  const std::size_t runs = samples.size();
  const auto [median, spread] = median_spread(std::move(samples));
  add({name, metric, unit, median, spread, ceiling, lower_is_better, runs});
}

void BenchResults::add_quantile(const std::string& name, const std::string& metric,
                                const std::string& unit, const std::string& statistic,
                                double quantile, std::vector<double> samples) {
  TANDEM_ASSERT(!samples.empty(), name);
  std::sort(samples.begin(), samples.end());
  const auto at =
      static_cast<std::size_t>(quantile * static_cast<double>(samples.size() - 1) + 0.5);
  add({name, metric, unit, samples[at], 0, 0, true, samples.size(), statistic});
}

void BenchResults::set_origin(json::object machine, std::string commit) {
  machine_ = std::move(machine);
  commit_ = std::move(commit);
}

std::string BenchResults::origin_text() const {
  const json::object document = json();
  const json::object& where = document.at("machine").as_object();
  const json::value& device = where.at("gpu").is_null() ? where.at("cpu") : where.at("gpu");
  return concat(device.as_string().c_str(), ", commit ", document.at("commit").as_string().c_str(),
                ", ", document.at("date").as_string().c_str());
}

std::string BenchResults::table() const { return text_table(lines_) + notes_; }

json::object BenchResults::json() const {
  json::object document{{"bench", bench_},
                        {"machine", machine_.empty() ? machine(nccl_version_) : machine_},
                        {"commit", commit_.empty() ? build_commit() : commit_},
                        {"date", today()},
                        {"command", command_}};
  if (!work_.empty()) document["work"] = work_;
  document["rows"] = rows_;
  return document;
}

void BenchResults::write(const std::string& path) const {
  json::object document = json();
  document.erase("rows");
  std::string text = json::serialize(document);
  text.back() = ',';
  text += "\"rows\": [";
  for (std::size_t i = 0; i < rows_.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + json::serialize(rows_[i]);
  text += "\n]}\n";
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  write_text_file("--json", path, text);
}

}  // namespace tandem::launch
