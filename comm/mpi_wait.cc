// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_wait.h"

#include "comm/mpi_check.h"

namespace tandem::comm {

void wait_for(MPI_Request& request, const WaitPolicy& policy) {
  int done = 0;
  wait_until(
      [&] {
        TANDEM_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        return done != 0;
      },
      policy);
}

}  // namespace tandem::comm
