// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce_timing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/device/cuda/event.h"

namespace tandem::comm {
namespace {

using kernels::PeerAlgorithm;

constexpr int kCalls = 20, kRepeats = 7;

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace

AllReduceTable only(PeerAlgorithm algorithm) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  return {algorithm == PeerAlgorithm::kPush ? kAll : 0,
          algorithm == PeerAlgorithm::kPull ? kAll : 0,
          algorithm == PeerAlgorithm::kTwoShot ? kAll : 0};
}

bool fits_workspace(PeerAlgorithm algorithm, std::int64_t size_bytes) {
  return kernels::fits(algorithm, kernels::flat_grid((size_bytes + 15) / 16));
}

std::vector<double> time_all_reduce(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                    ControlPlane& control, std::int64_t size_bytes, bool graph,
                                    int calls, int repeats) {
  const Buffer<BFloat16, Cuda> data(size_bytes / 2);
  fill_zero(ctx, data.data(), data.size_bytes());
  const auto enqueue = [&] {
    for (int call = 0; call < calls; ++call) communicator.all_reduce_sum(ctx, data.span());
  };
  Graph<Cuda> captured;
  if (graph) captured = Graph<Cuda>::capture(ctx, enqueue);
  Event<Cuda> start(true), stop(true);
  std::vector<double> times_us;
  for (int repeat = 0; repeat <= repeats; ++repeat) {  // Repeat 0 warms up.
    start.record(ctx.compute());
    if (graph)
      captured.launch(ctx.compute());
    else
      enqueue();
    stop.record(ctx.compute());
    stop.synchronize();
    const double us = double{stop.milliseconds_since(start)} * 1000.0 / calls;
    const auto slowest = control.max(std::llround(us * 1000.0));
    if (repeat > 0) times_us.push_back(static_cast<double>(slowest) / 1000.0);
  }
  return times_us;
}

std::vector<AllReduceTiming> time_all_ways(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                           ControlPlane& control) {
  const AllReduceTable before = communicator.table();
  std::vector<AllReduceTiming> timings;
  const auto time = [&](const AllReduceTable& table, std::int64_t size_bytes) {
    communicator.set_table(table);
    return median(
        time_all_reduce(ctx, communicator, control, size_bytes, /*graph=*/true, kCalls, kRepeats));
  };
  for (std::int64_t size_bytes = 4 << 10; size_bytes <= 8 << 20; size_bytes *= 2) {
    const auto own = [&](PeerAlgorithm algorithm) {
      return fits_workspace(algorithm, size_bytes) ? time(only(algorithm), size_bytes)
                                                   : std::numeric_limits<double>::infinity();
    };
    AllReduceTiming timing;
    timing.size_bytes = size_bytes;
    timing.push_us = own(PeerAlgorithm::kPush);
    timing.pull_us = own(PeerAlgorithm::kPull);
    timing.two_shot_us = own(PeerAlgorithm::kTwoShot);
    timing.nccl_us = time({}, size_bytes);
    timings.push_back(timing);
  }
  communicator.set_table(before);
  return timings;
}

}  // namespace tandem::comm
