// SPDX-License-Identifier: Apache-2.0
// all_reduce_bench --local N: all_reduce_local.h.
// mpirun -n N all_reduce_bench [--graph-only]: every all-reduce way at 4 KiB .. 256 MiB of bf16,
// replayed in a graph and enqueued eagerly, p50 and p99 over repeats of the slowest rank; then the
// seam of a decode step, all-reduce + residual + norm, fused against NCCL and a norm kernel. Bus
// bandwidth is size * 2 (n - 1) / n / time, as nccl-tests count it; its ceiling is the peer read
// rate of one H200 (375 GB/s). Eager NCCL is the prefill communicator with its limit of blocks.
// Rank 0 prints JSON.
#include <nccl.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "comm/all_reduce_timing.h"
#include "kernels/device/device_info.h"
#include "tests/bench/all_reduce_local.h"
#include "tests/bench/report.h"

namespace tandem::comm {
namespace {

using kernels::PeerAlgorithm;

constexpr double kPeerGigabytesPerS = 375.0;
constexpr std::int64_t kLargestBytes = std::int64_t{256} << 20;

struct Way {
  const char* name;
  AllReduceTable table;
  std::optional<PeerAlgorithm> own;
};

std::vector<Way> ways() {
  return {{"push", only(PeerAlgorithm::kPush), PeerAlgorithm::kPush},
          {"pull", only(PeerAlgorithm::kPull), PeerAlgorithm::kPull},
          {"two-shot", only(PeerAlgorithm::kTwoShot), PeerAlgorithm::kTwoShot},
          {"nccl", {}, std::nullopt}};
}

std::string size_text(std::int64_t size_bytes) {
  return size_bytes < (1 << 20) ? concat(size_bytes >> 10, "KiB") : concat(size_bytes >> 20, "MiB");
}

struct Bench {
  ControlPlane& control;
  Context<Cuda>& ctx;
  Communicator<Cuda>& communicator;
  bench::Report& report;

  void add(const std::string& name, const std::vector<double>& times_us) {
    if (control.rank() != 0) return;
    report.add_median(name, "latency_us", "us", times_us, 0);
    report.add_quantile(name, "latency_us", "us", "p99", 0.99, times_us);
  }

  void plain(const Way& way, std::int64_t size_bytes, bool graph) {
    if (way.own && !fits_workspace(*way.own, size_bytes)) return;
    communicator.set_table(way.table);
    const int calls = size_bytes <= (1 << 20) ? 50 : 5,
              repeats = size_bytes <= (1 << 20) ? 100 : 20;
    const auto times_us =
        time_all_reduce(ctx, communicator, control, size_bytes, graph, calls, repeats);
    const std::string name = concat("all-reduce bf16 n", control.size(), " ", way.name, " ",
                                    graph ? "graph " : "eager ", size_text(size_bytes));
    add(name, times_us);
    if (size_bytes < (1 << 20) || control.rank() != 0) return;
    std::vector<double> rates;
    for (const double us : times_us)
      rates.push_back(static_cast<double>(size_bytes) * 2 * (control.size() - 1) / control.size() /
                      us / 1000.0);
    report.add_median(name, "bus_bandwidth", "GB/s", rates, kPeerGigabytesPerS);
  }

  static BFloat16 pattern(int rank, std::int64_t i) {
    return BFloat16(std::ldexp(static_cast<float>((i * 13 + rank * 7919) % 257 - 128), 3 * rank));
  }

  /// Elements of one sum that are not the bits of the sum in rank order with one rounding, on any
  /// rank. NCCL promises no order: of more than two ranks only those are counted that differ from
  /// rank 0's.
  void check(const Way& way, std::int64_t size_bytes) {
    if (way.own && !fits_workspace(*way.own, size_bytes)) return;
    communicator.set_table(way.table);
    const std::int64_t size = size_bytes / 2;
    std::vector<BFloat16> host, want;
    for (std::int64_t i = 0; i < size; ++i) {
      host.push_back(pattern(control.rank(), i));
      float sum = 0;
      for (int r = 0; r < control.size(); ++r) sum += static_cast<float>(pattern(r, i));
      want.push_back(BFloat16(sum));
    }
    const Buffer<BFloat16, Cuda> data(size);
    copy_to_device(ctx, data.data(), host.data(), data.size_bytes());
    communicator.all_reduce_sum(ctx, data.span());
    copy_to_host(ctx, host.data(), data.data(), data.size_bytes());
    ctx.compute().synchronize();
    if (!way.own && control.size() > 2) {
      std::vector<std::byte> first(static_cast<std::size_t>(size_bytes));
      std::memcpy(first.data(), host.data(), first.size());
      control.broadcast(first);
      std::memcpy(want.data(), first.data(), first.size());
    }
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < host.size(); ++i) wrong += host[i].bits != want[i].bits;
    wrong = control.max(wrong);
    if (control.rank() == 0)
      report.add_median(
          concat("all-reduce bf16 n", control.size(), " ", way.name, " ", size_text(size_bytes)),
          "wrong_elements", "elements", {static_cast<double>(wrong)}, 0);
  }

  /// Seams in a graph, as a decode step has two a layer, with the rows split as the engine splits
  /// them and over other numbers of blocks.
  void fused(const Way& way, std::int64_t rows, std::int32_t row_blocks) {
    const auto grid = kernels::row_grid(rows, kSeamHidden / 8, kernels::kPeerBlocks, row_blocks);
    if (way.own && !kernels::fits(*way.own, grid)) return;
    communicator.set_table(way.table);
    communicator.set_row_blocks(row_blocks);
    add(concat("reduce-add-norm bf16 n", control.size(), " ", way.name, " graph ", rows, "x",
               kSeamHidden, row_blocks == 0 ? "" : concat(" in ", grid.cluster, " blocks")),
        time_seam(ctx, communicator, control, rows, 50, 100));
    communicator.set_row_blocks(0);
  }
};

int run(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--local") == 0) {
    bench::Report report("all_reduce_local", argc, argv);
    bench::bench_local_ranks(report, std::atoi(argv[2]));
    report.print();
    return 0;
  }
  const MpiSession session(&argc, &argv);
  ControlPlane control(session);
  const auto gpus = static_cast<int>(query_devices().devices.size());
  CudaOptions cuda;
  cuda.device = gpus == 0 ? 0 : session.local_rank() % gpus;
  Context<Cuda> ctx(cuda);
  CudaCommunicatorOptions options;
  options.allow_shared_gpu = true;
  Communicator<Cuda> communicator(ctx, control, options);
  const bool shared = session.local_size() > gpus;
  bench::Report report(shared ? "all_reduce_shared_gpu" : "all_reduce", argc, argv);
  report.set_nccl_version(NCCL_VERSION_CODE);
  const bool graph_only = argc > 1 && std::strcmp(argv[1], "--graph-only") == 0;
  Bench bench{control, ctx, communicator, report};
  const std::int64_t largest = shared ? 64 << 10 : kLargestBytes;
  for (const Way& way : ways())
    for (std::int64_t size = 4 << 10; size <= std::min<std::int64_t>(largest, 4 << 20); size *= 8)
      bench.check(way, size);
  for (const bool graph : {true, false})
    for (const Way& way : ways())
      for (std::int64_t size = 4 << 10; size <= largest; size *= 2)
        if (graph || !graph_only) bench.plain(way, size, graph);
  for (const Way& way : ways())
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64})
      for (const std::int32_t row_blocks : {0, 1, 2, 8})
        if (way.own || row_blocks == 0) bench.fused(way, rows, row_blocks);
  if (control.rank() == 0) report.print();
  return 0;
}

}  // namespace
}  // namespace tandem::comm

int main(int argc, char** argv) {
  try {
    return tandem::comm::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
