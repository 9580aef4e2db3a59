// SPDX-License-Identifier: Apache-2.0
// Turns MPI return codes into MpiError. MPI_COMM_WORLD and what is duplicated from it return codes
// instead of aborting, so every call of ours is wrapped.
#pragma once

namespace tandem::comm::detail {
/// Throws MpiError naming the call, the place and MPI's own text.
[[noreturn]] void throw_mpi(int code, const char* call, const char* file, int line);
}  // namespace tandem::comm::detail

#define TANDEM_CHECK_MPI(call)                                                       \
  do {                                                                               \
    if (const int tandem_mpi_code = (call); tandem_mpi_code != 0)                    \
      ::tandem::comm::detail::throw_mpi(tandem_mpi_code, #call, __FILE__, __LINE__); \
  } while (false)
