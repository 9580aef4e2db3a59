// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/all_reduce_local.h"

#include <algorithm>
#include <memory>

#include "comm/peer_memory.h"
#include "kernels/cuda/all_reduce.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"

namespace tandem::bench {
namespace {

constexpr int kCalls = 200, kRepeats = 30;

/// No kernel starts early: calls that wait for each other in a chain would fill the GPU before the
/// other rank's first one has a place on it.
CudaOptions one_kernel_at_a_time() {
  CudaOptions options;
  options.programmatic_launch = false;
  return options;
}

/// One rank: its streams, its view of the workspaces, and a message of `rows` x `hidden`.
struct LocalRank {
  LocalRank(const comm::PeerMemory& memory, int ranks, std::int64_t rows, std::int64_t hidden)
      : view(memory.view()),
        partial(rows * hidden),
        residual(rows * hidden),
        normed(rows * hidden),
        weight(hidden) {
    view.max_blocks = kernels::kPeerBlocks / ranks;  // All grids are resident together.
    for (const auto* buffer : {&partial, &residual})
      fill_zero(ctx, buffer->data(), buffer->size_bytes());
    fill_zero(ctx, weight.data(), weight.size_bytes());
    ctx.compute().synchronize();
  }
  void reduce(kernels::PeerAlgorithm algorithm) {
    kernels::peer_all_reduce(ctx, ctx.compute(), view, algorithm, partial.span());
  }
  void reduce_add_norm(kernels::PeerAlgorithm algorithm, std::int64_t rows, std::int64_t hidden) {
    kernels::AddNormArgs<BFloat16, Cuda> args;
    args.next_norm = {weight.data(), 1e-5f};
    args.residual = residual.view(rows, hidden);
    args.normed = normed.view(rows, hidden);
    kernels::peer_reduce_add_norm(ctx, ctx.compute(), view, algorithm, partial.view(rows, hidden),
                                  args);
  }

  Context<Cuda> ctx{one_kernel_at_a_time()};
  kernels::PeerView view;
  Buffer<BFloat16, Cuda> partial, residual, normed;
  Buffer<float, Cuda> weight;
  Graph<Cuda> graph;
  Event<Cuda> start{true}, stop{true};
};

/// Microseconds of a call, of the slowest rank.
std::vector<double> replay(std::vector<std::unique_ptr<LocalRank>>& ranks) {
  std::vector<double> times_us;
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    for (auto& rank : ranks) {
      rank->start.record(rank->ctx.compute());
      rank->graph.launch(rank->ctx.compute());
      rank->stop.record(rank->ctx.compute());
    }
    double slowest_us = 0;
    for (auto& rank : ranks) {
      rank->stop.synchronize();
      slowest_us = std::max(slowest_us,
                            double{rank->stop.milliseconds_since(rank->start)} * 1000.0 / kCalls);
    }
    if (repeat > 0) times_us.push_back(slowest_us);
  }
  return times_us;
}

}  // namespace

void bench_local_ranks(Report& report, int ranks) {
  const auto memory = comm::local_peers(ranks);
  for (const std::int64_t rows : {1, 4, 16, 32, 64})
    for (const bool fused : {false, true}) {
      constexpr std::int64_t kHidden = 4096;
      const auto algorithm = kernels::PeerAlgorithm::kPush;
      const std::int32_t blocks = kernels::kPeerBlocks / ranks;
      if (!kernels::fits(algorithm, kernels::row_grid(rows, kHidden / 8, blocks)) ||
          !kernels::fits(algorithm, kernels::flat_grid(rows * kHidden / 8, blocks)))
        continue;
      std::vector<std::unique_ptr<LocalRank>> local;
      for (int r = 0; r < ranks; ++r)
        local.push_back(std::make_unique<LocalRank>(*memory[static_cast<std::size_t>(r)], ranks,
                                                    rows, kHidden));
      for (auto& rank : local)
        rank->graph = Graph<Cuda>::capture(rank->ctx, [&] {
          for (int call = 0; call < kCalls; ++call) {
            if (fused)
              rank->reduce_add_norm(algorithm, rows, kHidden);
            else
              rank->reduce(algorithm);
          }
        });
      report.add_median(concat(fused ? "reduce-add-norm" : "all-reduce", " bf16 n", ranks,
                               " push graph ", rows, "x", kHidden),
                        "latency_us", "us", replay(local), 0);
    }
}

}  // namespace tandem::bench
