// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

#include "comm/nccl_check.h"
#include "comm/nccl_comm.h"
#include "comm/peer_host.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::comm {
namespace {

int collect_nccl(dl_phdr_info* info, std::size_t, void* paths) {
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const std::size_t slash = path.rfind('/');
  const std::string_view file = slash == path.npos ? path : path.substr(slash + 1);
  if (file.starts_with("libnccl.so"))
    static_cast<std::set<std::string>*>(paths)->insert(std::string(path));
  return 0;
}

/// Two copies keep separate state and answer each other's handles with garbage.
void require_one_nccl() {
  std::set<std::string> paths;
  dl_iterate_phdr(collect_nccl, &paths);
  if (paths.size() < 2) return;
  std::string all;
  for (const std::string& path : paths) all += concat(all.empty() ? "" : " and ", path);
  throw ConfigError(concat("two copies of NCCL are loaded in one process: ", all,
                           "; remove one from LD_LIBRARY_PATH and LD_PRELOAD"));
}

std::string gpu_identity() {
  int device = 0;
  TANDEM_CHECK(cudaGetDevice(&device));
  char bus[32] = {};
  TANDEM_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
  return concat(host_identity(), " ", bus);
}

bool settle_shared_gpus(ControlPlane& control, bool allow_shared_gpu) {
  const std::vector<std::string> gpus = control.all_gather(gpu_identity());
  bool shared = false;
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < gpus.size(); ++b) {
      if (gpus[a] != gpus[b]) continue;
      TANDEM_REQUIRE(allow_shared_gpu, "ranks ", a, " and ", b,
                     " use the same GPU: start one rank per GPU (mpirun -n ",
                     std::set<std::string>(gpus.begin(), gpus.end()).size(),
                     "), or pass --allow-shared-gpu to test slowly on one");
      shared = true;
    }
  }
  // NCCL refuses two ranks of a host on one GPU; as two hosts it connects them by sockets.
  if (shared) ::setenv("NCCL_HOSTID", concat("tandem-rank-", control.rank()).c_str(), 1);
  return shared;
}

}  // namespace

bool nccl_version_matches() {
  int version = 0;
  TANDEM_CHECK(ncclGetVersion(&version));
  return version == NCCL_VERSION_CODE;
}

bool prepare_nccl(ControlPlane& control, bool allow_shared_gpu) {
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  control.together(require_one_nccl);
  const bool shared = settle_shared_gpus(control, allow_shared_gpu);
  int version = 0;
  TANDEM_CHECK(ncclGetVersion(&version));
  const std::int64_t oldest = control.min(version), newest = control.max(version);
  TANDEM_REQUIRE(oldest == newest, "the ranks loaded different versions of NCCL (", oldest, " and ",
                 newest, "): give all hosts the same libnccl.so.2");
  TANDEM_REQUIRE(version / 10000 == NCCL_MAJOR, "NCCL ", version,
                 " is loaded, this build needs major version ", NCCL_MAJOR,
                 ": put the right libnccl.so.2 first in LD_LIBRARY_PATH");
  if (version != NCCL_VERSION_CODE)
    log_info("NCCL ", version, " is loaded, this build was compiled with ", NCCL_VERSION_CODE,
             ": its windows are not used");
  return shared;
}

}  // namespace tandem::comm
