// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "kernels/device/cuda/check.h"
#include "kernels/device/error.h"

namespace tandem::bench {
namespace {

/// JSON string; our texts hold no control characters.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string number(double value) {
  std::ostringstream text;
  text.precision(6);
  text << value;
  return text.str();
}

std::string cuda_version(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

std::string nccl_text(int version) {
  return concat(version / 10000, '.', version % 10000 / 100, '.', version % 100);
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string machine(int nccl_version) {
  cudaDeviceProp properties{};
  int gpus = 0, driver = 0, runtime = 0;
  TANDEM_CHECK(cudaGetDeviceProperties(&properties, 0));
  TANDEM_CHECK(cudaGetDeviceCount(&gpus));
  TANDEM_CHECK(cudaDriverGetVersion(&driver));
  TANDEM_CHECK(cudaRuntimeGetVersion(&runtime));
  return concat("{\"gpu\": ", quoted(properties.name), ", \"gpus\": ", gpus,
                ", \"driver\": ", quoted(cuda_version(driver)),
                ", \"cuda\": ", quoted(cuda_version(runtime)),
                ", \"nccl\": ", nccl_version == 0 ? "null" : quoted(nccl_text(nccl_version)),
                ", \"cpu\": ", quoted(cpu_model()), "}");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace

Report::Report(std::string bench, int argc, char** argv) : bench_(std::move(bench)) {
  for (int i = 0; i < argc; ++i) command_ += concat(i == 0 ? "" : " ", argv[i]);
}

void Report::add_median(const std::string& name, const std::string& metric, const std::string& unit,
                        std::vector<double> samples, double ceiling) {
  TANDEM_ASSERT(!samples.empty(), name);
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  const double spread = (samples[samples.size() * 3 / 4] - samples[samples.size() / 4]) / 2;
  add_row(name, metric, unit, "median", samples.size(), median, spread, ceiling);
}

void Report::add_quantile(const std::string& name, const std::string& metric,
                          const std::string& unit, const std::string& statistic, double quantile,
                          std::vector<double> samples) {
  TANDEM_ASSERT(!samples.empty(), name);
  std::sort(samples.begin(), samples.end());
  const auto at =
      static_cast<std::size_t>(quantile * static_cast<double>(samples.size() - 1) + 0.5);
  add_row(name, metric, unit, statistic, samples.size(), samples[at], 0, 0);
}

void Report::add_row(const std::string& name, const std::string& metric, const std::string& unit,
                     const std::string& statistic, std::size_t runs, double value, double spread,
                     double ceiling) {
  std::string row = concat("{\"case\": ", quoted(name), ", \"metric\": ", quoted(metric),
                           ", \"unit\": ", quoted(unit), ", \"statistic\": ", quoted(statistic),
                           ", \"runs\": ", runs, ", \"value\": ", number(value),
                           ", \"spread\": ", number(spread));
  row += ceiling > 0 ? concat(", \"ceiling\": ", number(ceiling),
                              ", \"share\": ", number(value / ceiling), "}")
                     : std::string(", \"ceiling\": null, \"share\": null}");
  rows_.push_back(row);
  std::fprintf(stderr, "%-64s %-22s %-6s %10.4g +- %.2g %s\n", name.c_str(), metric.c_str(),
               statistic.c_str(), value, spread, unit.c_str());
}

void Report::print() const {
  std::printf(
      "{\"bench\": %s, \"machine\": %s, \"commit\": null, \"date\": %s, \"command\": %s, \"rows\": "
      "[",
      quoted(bench_).c_str(), machine(nccl_version_).c_str(), quoted(today()).c_str(),
      quoted(command_).c_str());
  for (std::size_t i = 0; i < rows_.size(); ++i)
    std::printf("%s\n  %s", i == 0 ? "" : ",", rows_[i].c_str());
  std::printf("\n]}\n");
}

}  // namespace tandem::bench
