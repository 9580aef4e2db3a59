// SPDX-License-Identifier: Apache-2.0
// How a rank waits for others without burning a core: it polls for a moment (yielding the core each
// time, because hosts are often crowded), so that a busy job pays no wake-up latency, then naps for
// a sixteenth of the time it has waited, up to a limit. Called from the step thread only.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tandem::comm {

struct WaitPolicy {
  std::chrono::microseconds spin;     ///< Poll this long first.
  std::chrono::microseconds max_nap;  ///< Longest nap after that.
  int polls_per_nap;                  ///< Large messages need many, idle ranks one.
};

/// Plans come one per step: a follower that heard nothing for a while is idle.
inline constexpr WaitPolicy kControlWait{std::chrono::microseconds(200),
                                         std::chrono::microseconds(6000), 1};
/// Inside a step the others are only skewed: naps stay short and start late.
inline constexpr WaitPolicy kDataWait{std::chrono::microseconds(2000),
                                      std::chrono::microseconds(20), 16};

/// Returns when `done()`, one poll, is true.
template <typename Done>
void wait_until(const Done& done, const WaitPolicy& policy) {
  using Clock = std::chrono::steady_clock;
  // A large message moves by a fragment or two a poll; on a busy host every yield costs a time
  // slice of somebody else, so polls come in bursts.
  constexpr int kBurst = 16;
  const auto poll = [&](int times) {
    for (int i = 0; i < times; ++i)
      if (done()) return true;
    return false;
  };
  if (poll(kBurst)) return;
  const auto start = Clock::now();
  while (Clock::now() - start < policy.spin) {
    ::sched_yield();
    if (poll(kBurst)) return;
  }
  while (true) {
    // A nap of a sixteenth of the time waited adds at most that share to the wait.
    std::this_thread::sleep_for(
        std::min<Clock::duration>((Clock::now() - start) / 16, policy.max_nap));
    if (poll(policy.polls_per_nap)) return;
  }
}

/// Returns when `request` is complete. Throws MpiError.
void wait_for(MPI_Request& request, const WaitPolicy& policy);

}  // namespace tandem::comm
