// SPDX-License-Identifier: Apache-2.0
// Owns one blocking NCCL communicator. Blocking, because a non-blocking one launches from another
// thread and breaks events and captures; created under a deadline instead, with the ranks that did
// not get there named. Destroy captured graphs first: NCCL waits for graphs that hold its nodes.
// Collectives are enqueued by the step thread; `async_error` may be asked by any thread.
#pragma once

#include <nccl.h>

#include <chrono>
#include <string>

#include "comm/control_plane.h"

namespace tandem::comm {

struct NcclCommOptions {
  const char* name = "";               ///< In NCCL's own log; a string literal: NCCL keeps it.
  int max_ctas = 0;                    ///< Blocks a collective may take; 0: NCCL decides.
  std::chrono::seconds deadline{120};  ///< For all ranks to arrive and connect.
};

class NcclComm {
 public:
  /// Collective over `control`, on the current GPU. Error naming the ranks that missed the
  /// deadline.
  NcclComm(ControlPlane& control, const NcclCommOptions& options);
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
  ~NcclComm();

  ncclComm_t handle() const { return comm_; }
  /// Empty, or what went wrong in a collective that was enqueued earlier.
  std::string async_error() const;
  /// Ends running collectives; the destructor then waits for nobody.
  void abort() noexcept;

 private:
  ncclComm_t comm_ = nullptr;
};

/// Before the first NCCL call of the process, on all ranks: settings, versions, GPUs. Sets
/// NCCL_NVLS_ENABLE=0 (NVLink multicast stays off) and NCCL_RUNTIME_CONNECT=0 (all is connected
/// before a capture) unless they are set. ConfigError for two copies of
/// NCCL in one process, and for two ranks on one GPU unless `allow_shared_gpu`; these then get a
/// NCCL_HOSTID each, which makes NCCL treat them as two hosts. True: some GPU is shared.
/// Collective.
bool prepare_nccl(ControlPlane& control, bool allow_shared_gpu);

/// NCCL at run time is the one this build was compiled with: its device code may be used.
bool nccl_version_matches();

}  // namespace tandem::comm
