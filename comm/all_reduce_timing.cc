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
constexpr std::int64_t kSeamRowBytes = 2 * kSeamHidden;

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// Microseconds of a call, `calls` back to back, of the slowest rank; `repeats` of them.
template <typename Call>
std::vector<double> time_calls(Context<Cuda>& ctx, ControlPlane& control, bool graph, int calls,
                               int repeats, const Call& call) {
  const auto enqueue = [&] {
    for (int i = 0; i < calls; ++i) call();
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

}  // namespace

AllReduceTable only(PeerAlgorithm algorithm) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  return {algorithm == PeerAlgorithm::kPush ? kAll : 0,
          algorithm == PeerAlgorithm::kPull ? kAll : 0,
          algorithm == PeerAlgorithm::kTwoShot ? kAll : 0};
}

bool fits_workspace(PeerAlgorithm algorithm, std::int64_t size_bytes, bool seam) {
  return kernels::fits(algorithm,
                       seam ? kernels::row_grid(size_bytes / kSeamRowBytes, kSeamRowBytes / 16)
                            : kernels::flat_grid((size_bytes + 15) / 16));
}

std::vector<double> time_all_reduce(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                    ControlPlane& control, std::int64_t size_bytes, bool graph,
                                    int calls, int repeats) {
  const Buffer<BFloat16, Cuda> data(size_bytes / 2);
  fill_zero(ctx, data.data(), data.size_bytes());
  return time_calls(ctx, control, graph, calls, repeats,
                    [&] { communicator.all_reduce_sum(ctx, data.span()); });
}

std::vector<double> time_seam(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                              ControlPlane& control, std::int64_t rows, int calls, int repeats) {
  const std::int64_t size = rows * kSeamHidden;
  const Buffer<BFloat16, Cuda> partial(size), residual(size), normed(size);
  const Buffer<float, Cuda> weight(kSeamHidden);
  for (const auto* buffer : {&partial, &residual})
    fill_zero(ctx, buffer->data(), buffer->size_bytes());
  fill_zero(ctx, weight.data(), weight.size_bytes());
  kernels::AddNormArgs<BFloat16, Cuda> args;
  const auto branch = partial.view(rows, kSeamHidden);
  args.branch = {branch.data, rows, kSeamHidden};
  args.next_norm = {weight.data(), 1e-5f};
  args.residual = residual.view(rows, kSeamHidden);
  args.normed = normed.view(rows, kSeamHidden);
  return time_calls(ctx, control, /*graph=*/true, calls, repeats,
                    [&] { communicator.reduce_add_norm(ctx, branch, args); });
}

std::vector<AllReduceTiming> time_all_ways(Context<Cuda>& ctx, Communicator<Cuda>& communicator,
                                           ControlPlane& control, bool seam) {
  const AllReduceTable before = communicator.table();
  std::vector<AllReduceTiming> timings;
  const auto time = [&](const AllReduceTable& table, std::int64_t size_bytes) {
    communicator.set_table(table);
    return median(
        seam ? time_seam(ctx, communicator, control, size_bytes / kSeamRowBytes, kCalls, kRepeats)
             : time_all_reduce(ctx, communicator, control, size_bytes, /*graph=*/true, kCalls,
                               kRepeats));
  };
  for (std::int64_t size_bytes = seam ? kSeamRowBytes : 4 << 10; size_bytes <= 8 << 20;
       size_bytes *= 2) {
    const auto own = [&](PeerAlgorithm algorithm) {
      return fits_workspace(algorithm, size_bytes, seam) ? time(only(algorithm), size_bytes)
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
