// SPDX-License-Identifier: Apache-2.0
// The process as a rank: initialises MPI (MPI_THREAD_FUNNELED: only the step thread calls it) and
// finalises it last of all. Rank and size come from MPI, the local rank from the shared-memory
// split, never from SLURM_* (those are wrong for ranks under mpirun inside an allocation).
#pragma once

#include <string>

namespace tandem::comm {

class MpiSession {
 public:
  /// Sets Open MPI's yield mode when the host has more ranks than cores, then MPI_Init.
  /// ConfigError when this process is one of several singletons that a launcher meant as one job.
  MpiSession(int* argc, char*** argv);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< Among the ranks of this host.
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  bool under_launcher() const { return under_launcher_; }  ///< Started by mpirun or srun.

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  bool under_launcher_ = false;
  std::string host_;
};

}  // namespace tandem::comm
