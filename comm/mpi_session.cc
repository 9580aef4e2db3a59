// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

/// The launcher's own count of ranks on this host, 0 when there is none. Only a hint: it decides
/// how MPI waits, before MPI can be asked.
int ranks_on_host_hint() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  if (ranks_on_host_hint() > static_cast<int>(std::thread::hardware_concurrency()))
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  under_launcher_ =
      std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &local_rank_);
  MPI_Comm_size(local, &local_size_);
  MPI_Comm_free(&local);
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  host_ = name;
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

}  // namespace tandem::comm
