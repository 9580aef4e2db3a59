// SPDX-License-Identifier: Apache-2.0
// The one MPI session of a test program (made by mpi_main.cc, because MPI starts once a process).
#pragma once

#include "comm/mpi_session.h"

namespace tandem::testing {

const comm::MpiSession& world();

}  // namespace tandem::testing
