// SPDX-License-Identifier: Apache-2.0
// memory_bench: what growing the cache costs a running step, and what allocating in a step would.
// "growth": one graph of copies (about 350 us) is replayed over the mapped part of a range, alone
// and while another thread maps segments into the rest, up to most of the free memory.
// "allocation": a step of 64 fills of 1 MiB, each in memory that is there, that comes from the
// stream-ordered pool, or that is got by cudaMalloc and given back by cudaFree. One GPU.
#include <chrono>
#include <cstdio>
#include <thread>

#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/device_info.h"
#include "kvcache/virtual_range_cuda.h"
#include "tests/bench/report.h"

namespace tandem::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Range = kvcache::VirtualRange<Cuda>;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int64_t kCopyBytes = std::int64_t{64} << 20;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Times of `replays` replays, at most two in flight, as decode steps are.
std::vector<double> replay(Context<Cuda>& ctx, Graph<Cuda>& graph, int replays) {
  std::vector<Event<Cuda>> starts, stops;
  for (int i = 0; i < replays; ++i) {
    starts.emplace_back(true);
    stops.emplace_back(true);
  }
  std::vector<double> times_us;
  for (int i = 0; i < replays; ++i) {
    const auto at = static_cast<std::size_t>(i);
    starts[at].record(ctx.compute());
    graph.launch(ctx.compute());
    stops[at].record(ctx.compute());
    if (i > 0) stops[at - 1].synchronize();
  }
  ctx.compute().synchronize();
  for (std::size_t i = 0; i < starts.size(); ++i)
    times_us.push_back(double{stops[i].milliseconds_since(starts[i])} * 1000.0);
  return times_us;
}

void add(Report& report, const std::string& name, const std::string& metric,
         const std::vector<double>& times_us) {
  report.add_median(name, metric, "us", times_us, 0);
  report.add_quantile(name, metric, "us", "p99", 0.99, times_us);
  report.add_quantile(name, metric, "us", "max", 1.0, times_us);
}

void growth(Context<Cuda>& ctx, std::size_t segment_bytes, std::size_t most_bytes, Report& report) {
  constexpr int kReplays = 2000;
  Range range(most_bytes, segment_bytes);
  if (!range.map_to(2 * kCopyBytes)) throw Error("no memory for the first segments");
  std::byte* const base = range.data();
  auto graph = Graph<Cuda>::capture(ctx, [&] {
    for (int copy = 0; copy < 11; ++copy)
      copy_on_device(ctx, base + (copy % 2) * kCopyBytes, base + (1 - copy % 2) * kCopyBytes,
                     kCopyBytes);
  });
  replay(ctx, graph, 100);
  const std::string name = concat("growth segment ", segment_bytes / kMiB, "MiB");
  add(report, name, "step_alone_us", replay(ctx, graph, kReplays));
  std::vector<double> maps_us;
  std::atomic<bool> stop{false};
  std::thread helper([&] {
    while (!stop && range.mapped_bytes() + segment_bytes <= range.reserved_bytes()) {
      const auto start = Clock::now();
      if (!range.map_to(range.mapped_bytes() + segment_bytes)) return;
      maps_us.push_back(microseconds_since(start));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const auto during = replay(ctx, graph, kReplays);
  stop = true;
  helper.join();
  add(report, name, "step_growing_us", during);
  add(report, name, "map_call_us", maps_us);
  report.add_median(name, "mapped", "GiB",
                    {static_cast<double>(range.mapped_bytes()) / (1024.0 * kMiB)}, 0);
  if (range.data() != base) throw InternalError("the range moved");
}

template <typename Fill>
std::vector<double> steps(Context<Cuda>& ctx, const Fill& fill) {
  constexpr int kSteps = 200, kFills = 64;
  std::vector<double> times_us;
  for (int step = 0; step <= kSteps; ++step) {
    const auto start = Clock::now();
    for (int i = 0; i < kFills; ++i) fill();
    ctx.compute().synchronize();
    if (step > 0) times_us.push_back(microseconds_since(start));
  }
  return times_us;
}

void allocation(Context<Cuda>& ctx, Report& report) {
  constexpr std::int64_t kBytes = 1 << 20;
  const Buffer<std::byte, Cuda> fixed(kBytes);
  const std::string name = "allocation 64 fills of 1MiB";
  add(report, name, "step_fixed_us", steps(ctx, [&] { fill_zero(ctx, fixed.data(), kBytes); }));
  add(report, name, "step_pool_us", steps(ctx, [&] {
        const Temporary temporary = ctx.temporary(kBytes);
        fill_zero(ctx, temporary.as<void>(), kBytes);
      }));
  add(report, name, "step_cuda_malloc_us", steps(ctx, [&] {
        const Buffer<std::byte, Cuda> fresh(kBytes);
        fill_zero(ctx, fresh.data(), kBytes);
      }));
}

int run(int argc, char** argv) {
  Context<Cuda> ctx(CudaOptions{});
  Report report("memory", argc, argv);
  const std::int64_t free_bytes = query_devices(true).devices[0].free_bytes;
  for (const std::size_t segment_mib : {2, 64, 256})
    growth(ctx, segment_mib * kMiB, static_cast<std::size_t>(free_bytes) / 10 * 9, report);
  allocation(ctx, report);
  report.print();
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  try {
    return tandem::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
