// SPDX-License-Identifier: Apache-2.0
// Host bytes between ranks: plans, addresses, agreement on errors. Its own duplicate of
// MPI_COMM_WORLD; never touches device memory. All calls are collective and synchronous, made from
// the step thread. Waiting ranks sleep (under 2 % of a core), they do not spin, except for the
// first moments of a wait, so that a busy job pays no wake-up latency.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "comm/progress.h"

namespace tandem::comm {

class ControlPlane {
 public:
  explicit ControlPlane(const MpiSession& session);
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  ~ControlPlane();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Rank 0's `bytes` replace everybody's.
  void broadcast(std::vector<std::byte>& bytes);
  /// Element r is rank r's string, on all ranks.
  std::vector<std::string> all_gather(const std::string& mine);
  std::int64_t min(std::int64_t mine);
  std::int64_t max(std::int64_t mine);
  void barrier();

  /// Runs `work` on this rank and agrees on the outcome: when it threw on any rank, every rank
  /// throws ConfigError (or Error) with the text of the lowest such rank, named when only some
  /// ranks failed. So all ranks leave together, with one sentence.
  void together(const std::function<void()>& work);
  /// The same for work of rank 0 alone, which an error need not name.
  void on_first(const std::function<void()>& work);

  /// From here on waits are published: a follower without a plan as idle, all else as collective.
  /// `on_fault` ends the job.
  void report_to(Progress* progress, std::function<void(const std::string&)> on_fault = {}) {
    progress_ = progress;
    on_fault_ = std::move(on_fault);
  }
  Progress* progress() const { return progress_; }  ///< Null: nobody watches.
  /// This rank cannot go on: does not return when somebody watches. To be called before anything is
  /// unwound that could wait for other ranks, as a device does when its memory is freed.
  void fault(const std::string& sentence) const {
    if (on_fault_) on_fault_(sentence);
  }

  MPI_Comm handle() const { return comm_; }

 private:
  void wait(MPI_Request& request);
  void agree(const std::function<void()>& work, bool name_rank);
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  Progress* progress_ = nullptr;
  std::function<void(const std::string&)> on_fault_;
};

}  // namespace tandem::comm
