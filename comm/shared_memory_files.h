// SPDX-License-Identifier: Apache-2.0
// Open MPI's shared-memory files of this process and of its peers on the host. A rank that leaves
// by `_exit`, or is killed, would leave them in /dev/shm for ever when no mpirun cleans up.
#pragma once

#include <string>
#include <vector>

namespace tandem::comm {

/// Paths under /dev/shm that MPI has mapped into this process and that still exist.
std::vector<std::string> mpi_shared_memory_files();

/// Removes them; mappings stay valid. Any thread.
void remove_mpi_shared_memory_files() noexcept;

}  // namespace tandem::comm
