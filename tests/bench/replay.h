// SPDX-License-Identifier: Apache-2.0
// What the benches of decode's kernels share: lists of numbers as options, and the times of a
// captured graph. Blocks until the GPU is done.
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"

namespace tandem::bench {

inline constexpr double kReadCeiling = 4546.0;  ///< GB/s, read-only stream on one H200.

/// The parts of "a,b,c".
inline std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> result;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) result.push_back(part);
  return result;
}

inline std::vector<int> numbers(const std::string& list) {
  std::vector<int> result;
  for (const std::string& part : split(list)) result.push_back(std::stoi(part));
  return result;
}

/// Microseconds of each of 15 replays of a captured `body`.
inline std::vector<double> replay_us(Context<Cuda>& ctx, const std::function<void()>& body) {
  constexpr int kRuns = 15;
  body();  // shapes are tuned outside of the capture
  ctx.compute().synchronize();
  Graph<Cuda> graph = Graph<Cuda>::capture(ctx, body);
  std::vector<double> times;
  for (int run = -2; run < kRuns; ++run) {
    Event<Cuda> start(true), stop(true);
    start.record(ctx.compute());
    graph.launch(ctx.compute());
    stop.record(ctx.compute());
    stop.synchronize();
    if (run >= 0) times.push_back(1000.0 * stop.milliseconds_since(start));
  }
  return times;
}

}  // namespace tandem::bench
