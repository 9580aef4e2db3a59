// SPDX-License-Identifier: Apache-2.0
#include "launch/host_facts.h"

#include <mpi.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>

#include "comm/socket.h"
#include "kernels/device/error.h"
#include "launch/network_card.h"
#include "launch/version.h"

namespace tandem::launch {
namespace {

namespace fs = std::filesystem;

std::int64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find(','));
}

std::string cuda_version(int version) {
  return version == 0 ? "none" : concat(version / 1000, ".", version % 1000 / 10);
}

/// Names in /dev/shm and libraries that process `pid` has mapped, by suffix of the path.
void mapped_files(const fs::path& process, std::set<std::string>& shared,
                  std::set<std::string>* nccl) {
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    const auto at = line.find('/');
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    if (path.rfind("/dev/shm/", 0) == 0) shared.insert(path);
    if (nccl != nullptr && path.find("/libnccl.so") != std::string::npos) nccl->insert(path);
  }
}

/// MPI's segments that belong to this user and that no process has mapped any more.
std::vector<std::string> stale_shared_files() {
  std::set<std::string> mapped;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none))
    if (std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0])))
      mapped_files(entry.path(), mapped, nullptr);
  std::vector<std::string> stale;
  const std::string own = concat(".", std::hex, ::getuid(), ".");
  for (const auto& entry : fs::directory_iterator("/dev/shm", none)) {
    const std::string name = entry.path().filename();
    if (name.rfind("vader_segment.", 0) == 0 && name.find(own) != std::string::npos &&
        mapped.count(entry.path()) == 0)
      stale.push_back(entry.path());
  }
  return stale;
}

void add_environment(HostFacts& facts) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    for (const char* prefix : {"OMPI_MCA_", "NCCL_", "UCX_", "SLURM_NTASKS", "SLURM_JOB_ID",
                               "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})
      if (text.rfind(prefix, 0) == 0 && text.find("OMPI_MCA_orte_") != 0 &&
          text.find("OMPI_MCA_ess_") != 0 && text.find("OMPI_MCA_pmix") != 0)
        facts.environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
}

void add_gpus(const DeviceReport& devices, bool want_cuda, HostFacts& facts) {
  if (!devices.built_with_cuda) return;
  facts.versions["CUDA driver"] = cuda_version(devices.driver_version);
  facts.versions["CUDA runtime"] = cuda_version(devices.runtime_version);
  if (want_cuda) facts.gpu_problem = devices.problem;
  for (const DeviceInfo& info : devices.devices) {
    facts.gpus.push_back(info.name + " " + info.uuid);
    if (!info.unusable_because.empty() && facts.gpu_problem.empty())
      facts.gpu_problem = info.unusable_because;
    for (auto peer = static_cast<std::size_t>(info.ordinal) + 1; peer < info.peer_access.size();
         ++peer) {
      const std::string pair = concat("GPU ", info.ordinal, " and GPU ", peer);
      if (!info.peer_access[peer])
        facts.no_peer_access.push_back(pair);
      else if (!info.nvlink[peer])
        facts.pcie_peers.push_back(pair);
    }
  }
}

}  // namespace

HostFacts gather_host_facts(const comm::MpiSession& session, const DeviceReport& devices,
                            bool want_cuda) {
  HostFacts facts;
  facts.rank = session.rank();
  facts.host = session.host();
  facts.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  facts.versions["tandem"] = version_text();
  facts.versions["MPI"] = mpi_version();
  utsname system{};
  ::uname(&system);
  facts.versions["kernel"] = system.release;
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    facts.shm_total_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  facts.memlock_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.stack_bytes = limit_of(RLIMIT_STACK);
  facts.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.ranks_on_host = session.local_size();
  for (const NetworkCard& card : network_cards("")) facts.rdma |= card.rdma;
  for (const comm::NetworkInterface& item : comm::network_interfaces()) {
    if (item.virtual_bridge) facts.bridges.push_back(item.name);
    if (item.loopback || item.virtual_bridge) continue;
    facts.interfaces.push_back(
        concat(item.name, " ", item.address,
               item.speed_mbit > 0 ? concat(" ", item.speed_mbit, " Mb/s") : std::string()));
  }
  facts.stale_shared_files = stale_shared_files();
  std::set<std::string> shared, nccl;
  mapped_files("/proc/self", shared, &nccl);
  facts.nccl_libraries.assign(nccl.begin(), nccl.end());
  add_environment(facts);
  add_gpus(devices, want_cuda, facts);
  return facts;
}

}  // namespace tandem::launch
