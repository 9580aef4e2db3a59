// SPDX-License-Identifier: Apache-2.0
// What `doctor` asks of a rank's host: versions, limits, shared memory, interfaces, GPUs. Gathered
// from all ranks and judged by plain functions (host_checks.h), so that every case can be tested.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "kernels/device/device_info.h"

namespace tandem::launch {

struct HostFacts {
  int rank = 0;
  std::string host, boot_id;
  /// "tandem", "MPI", "kernel", "CUDA driver", "CUDA runtime", ...: those that must agree.
  std::map<std::string, std::string> versions;
  std::int64_t shm_total_bytes = 0, shm_free_bytes = 0;
  std::int64_t memlock_bytes = 0, open_files = 0, stack_bytes = 0;  ///< -1: unlimited
  int cores = 1, ranks_on_host = 1;
  bool rdma = false;                               ///< An RDMA card with an active port.
  std::vector<std::string> interfaces;             ///< "eth0 10.0.0.1 10000 Mb/s"
  std::vector<std::string> bridges;                ///< docker0 and the like
  std::vector<std::string> stale_shared_files;     ///< MPI's, mapped by no process.
  std::vector<std::string> nccl_libraries;         ///< Files loaded into this process.
  std::map<std::string, std::string> environment;  ///< OMPI_MCA_*, NCCL_*, SLURM_NTASKS, ...
  std::vector<std::string> gpus;                   ///< "NVIDIA H200 GPU-..."
  std::string gpu_problem;                         ///< Empty: the GPUs are usable, or none wanted.
  std::vector<std::string> no_peer_access;         ///< "GPU 0 and GPU 1"
  std::vector<std::string> pcie_peers;             ///< The same; peer access, but no NVLink.
};

HostFacts gather_host_facts(const comm::MpiSession& session, const DeviceReport& devices,
                            bool want_cuda);

std::string to_text(const HostFacts& facts);
HostFacts host_facts_from(const std::string& text);

}  // namespace tandem::launch
