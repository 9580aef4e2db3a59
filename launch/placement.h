// SPDX-License-Identifier: Apache-2.0
// Where every rank runs: host, device, NUMA node, cores, network card, and how it reaches the
// others. Chosen per rank, exchanged, checked (no two ranks on one GPU unless told) and shown as a
// table by `--verbose` and `doctor`. Plain values; the exchange is collective.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "comm/control_plane.h"
#include "comm/mpi_session.h"
#include "kernels/device/device_info.h"

namespace tandem::launch {

struct Place {
  int rank = 0, local_rank = 0;
  std::string host;
  int gpu = -1;  ///< Ordinal among the GPUs visible to the rank; -1: CPU rank.
  std::string gpu_name, gpu_uuid;
  int numa_node = -1;     ///< Of the GPU; -1: unknown or none.
  std::vector<int> cpus;  ///< What the rank runs on.
  int cores = 1;          ///< Physical cores among them.
  int threads = 1;        ///< Compute threads to start: its part of cores that ranks share.
  std::string nic;        ///< "mlx5_0 400 Gb/s" or "eth0 10 Gb/s"; "" when there is none.
  std::vector<std::string> peer_uuids;    ///< GPUs that this rank's GPU can load from directly.
  std::vector<std::string> nvlink_uuids;  ///< Those of them that it reaches over NVLink.
};

struct PlacementOptions {
  bool cuda = false;              ///< Ranks own a GPU each.
  bool allow_shared_gpu = false;  ///< More ranks than GPUs: several ranks on one.
  bool keep_binding = false;      ///< --cpu-bind=keep: leave the launcher's binding alone.
  std::string interfaces;         ///< --interface: names in order of preference.
};

/// The GPU of a rank: all visible ones are dealt in turn; a rank that sees a single one (Slurm's
/// --gpus-per-task) takes it. ConfigError when there are fewer than ranks and sharing is not
/// allowed, or none at all.
int choose_gpu(const DeviceReport& devices, int local_rank, int local_size, bool allow_shared);

/// Chooses, binds this process to its cores, exchanges and checks. Element r is rank r's place.
/// Collective; ConfigError on all ranks.
std::vector<Place> place_ranks(const comm::MpiSession& session, comm::ControlPlane& control,
                               const DeviceReport& devices, const PlacementOptions& options);

/// ConfigError naming the first two ranks that own the same GPU.
void refuse_shared_gpus(const std::vector<Place>& places);

/// One line per rank, columns aligned, a title line first.
std::string placement_table(const std::vector<Place>& places);

/// One object per rank.
boost::json::array to_json(const std::vector<Place>& places);

/// How rank `a` reaches rank `b`: "shared memory", "NVLink", "PCIe peer access", "through the host"
/// or "network".
std::string link_between(const Place& a, const Place& b);

}  // namespace tandem::launch
