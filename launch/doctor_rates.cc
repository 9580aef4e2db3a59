// SPDX-License-Identifier: Apache-2.0
#include "launch/doctor_rates.h"

#include <unistd.h>

#include <optional>

#include "kernels/device/cpu/context.h"
#include "launch/bench/results.h"
#include "launch/output_file.h"
#include "launch/plan/rate_probe.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

/// From rank 0's broadcast of a plan to its arrival, as between two steps.
double plan_us(comm::ControlPlane& control) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 51;
  std::vector<double> times;
  std::vector<std::byte> plan(256);
  for (int run = 0; run < kRuns; ++run) {
    const auto start = Clock::now();
    control.broadcast(plan);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    control.barrier();
  }
  std::sort(times.begin(), times.end());
  // The lower quartile: a slice that the host's other work takes is milliseconds beside these few
  // microseconds.
  return static_cast<double>(control.max(static_cast<std::int64_t>(times[kRuns / 4] * 1000))) /
         1000;
}

}  // namespace

DeviceRates measure_cpu_rates(Ranks& ranks, int threads) {
  ranks.watchdog.progress().enter(comm::StageKind::kLoad, "doctor: rates of the CPU ranks");
  DeviceRates rates;
  rates.device = "cpu";
  rates.name = concat(threads, threads == 1 ? " thread" : " threads");
  rates.ranks = ranks.control.size();
  rates.memory_bytes = double(::sysconf(_SC_PHYS_PAGES)) * double(::sysconf(_SC_PAGESIZE)) /
                       ranks.session.local_size();
  Context<Cpu> ctx(threads);
  std::optional<comm::Communicator<Cpu>> communicator;
  if (rates.ranks > 1) {
    communicator.emplace(ranks.control);
    rates.plan_us = plan_us(ranks.control);
  }
  RateProbe<Cpu>(ctx, ranks.control).measure(communicator ? &*communicator : nullptr, rates);
  return rates;
}

void write_rates(const std::string& path, const DeviceRates& rates) {
  std::string command = concat("tandem doctor --device ", rates.device, " --rates FILE");
  if (rates.ranks > 1) command = concat("mpirun -n ", rates.ranks, " ", command);
  if (rates.device == "cpu")
    command += concat(" --threads ", rates.name.substr(0, rates.name.find(' ')));
  boost::json::object document = BenchResults("rates", command).json();
  document["rates"] = to_json(rates);
  write_text_file("--rates", path, boost::json::serialize(document) + "\n");
}

std::string rates_text(const DeviceRates& rates) {
  std::vector<std::vector<std::string>> lines{{"rates", "", ""}};
  lines.push_back({"memory", decimal(rates.read_gb_per_s, 1) + " GB/s", "weights, one row"});
  lines.push_back({"bf16 matmul", decimal(rates.matmul_tflops, 3) + " TFLOP/s", "many rows"});
  const auto& [flops, us] = rates.prefill_attention.points().back();
  lines.push_back({"attention", decimal(flops / us / 1e6, 3) + " TFLOP/s", "longest prompt"});
  if (!rates.all_reduce.empty())
    lines.push_back({"all-reduce", decimal(rates.all_reduce.points().front().second, 1) + " us",
                     "smallest message"});
  return text_table(lines);
}

}  // namespace tandem::launch
