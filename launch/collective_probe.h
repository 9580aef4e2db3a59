// SPDX-License-Identifier: Apache-2.0
// A real collective with checked sums, timed by size: proof that the ranks of a device can work
// together (a copy test is none). Device-generic; a hang is ended by the caller's watchdog.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/device/buffer.h"
#include "launch/doctor_check.h"

namespace tandem::launch {

inline constexpr std::int64_t kProbeSizes[] = {8 << 10, 64 << 10, 1 << 20, 16 << 20};

/// Rows of float all-reduces over all ranks of `control`. Throws Error naming the rank whose sums
/// are wrong. Collective; `device` names the rows.
template <Device D>
std::vector<CollectiveRow> probe_all_reduce(Context<D>& ctx, comm::Communicator<D>& communicator,
                                            comm::ControlPlane& control,
                                            const std::string& device) {
  using Clock = std::chrono::steady_clock;
  const int ranks = control.size();
  std::vector<CollectiveRow> rows;
  for (const std::int64_t size : kProbeSizes) {
    const std::int64_t count = size / static_cast<std::int64_t>(sizeof(float));
    Buffer<float, D> buffer(count), small(8);
    fill_zero(ctx, small.data(), small.size_bytes());
    std::vector<float> host(static_cast<std::size_t>(count));
    std::vector<double> micros;
    bool right = true;
    for (int run = 0; run < 7; ++run) {
      for (std::int64_t i = 0; i < count; ++i)
        host[static_cast<std::size_t>(i)] = static_cast<float>((control.rank() + 1) * (i % 101));
      copy_to_device(ctx, buffer.data(), host.data(), size);
      ctx.compute().synchronize();
      control.barrier();
      // Ranks nap in a barrier; a tiny sum brings them to the start together.
      communicator.all_reduce_sum(ctx, small.span());
      ctx.compute().synchronize();
      const auto start = Clock::now();
      communicator.all_reduce_sum(ctx, buffer.span());
      ctx.compute().synchronize();
      const std::chrono::duration<double, std::micro> time = Clock::now() - start;
      if (run >= 2) micros.push_back(time.count());  // the first ones set up connections
      copy_to_host(ctx, host.data(), buffer.data(), size);
      ctx.compute().synchronize();
      for (std::int64_t i = 0; i < count; ++i)
        right &= host[static_cast<std::size_t>(i)] ==
                 static_cast<float>(ranks * (ranks + 1) / 2 * (i % 101));
    }
    control.together([&] {
      if (!right) throw Error(concat("an all-reduce of ", size, " bytes gave wrong sums"));
    });
    std::sort(micros.begin(), micros.end());
    const auto median_ns = static_cast<std::int64_t>(micros[micros.size() / 2] * 1000);
    const double slowest_us = static_cast<double>(control.max(median_ns)) / 1000;
    const double moved = static_cast<double>(size) * 2 * (ranks - 1) / ranks;
    rows.push_back({device, size, slowest_us, moved / slowest_us / 1000});
  }
  return rows;
}

}  // namespace tandem::launch
