// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_wait.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "comm/mpi_check.h"

namespace tandem::comm {

void wait_for(MPI_Request& request, const WaitPolicy& policy) {
  using Clock = std::chrono::steady_clock;
  int done = 0;
  TANDEM_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
  if (done) return;
  const auto spin_end = Clock::now() + policy.spin;
  do {
    ::sched_yield();
    TANDEM_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done) return;
  } while (Clock::now() < spin_end);
  const auto start = spin_end - policy.spin;
  while (true) {
    // A nap of a sixteenth of the time waited adds at most that share to the wait.
    std::this_thread::sleep_for(
        std::min<Clock::duration>((Clock::now() - start) / 16, policy.max_nap));
    TANDEM_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done) return;
  }
}

}  // namespace tandem::comm
