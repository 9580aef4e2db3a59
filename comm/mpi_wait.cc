// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_wait.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "comm/mpi_check.h"

namespace tandem::comm {

void wait_for(MPI_Request& request, const WaitPolicy& policy) {
  using Clock = std::chrono::steady_clock;
  // A large message moves by a fragment or two a poll; on a busy host every yield costs a time
  // slice of somebody else, so polls come in bursts.
  constexpr int kBurst = 16;
  int done = 0;
  const auto poll = [&](int times) {
    for (int i = 0; i < times && !done; ++i)
      TANDEM_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    return done != 0;
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

}  // namespace tandem::comm
