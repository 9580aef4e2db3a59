// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_host.h"

#include <unistd.h>

#include <fstream>

namespace tandem::comm {

std::string host_identity() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(name) + " " + boot;
}

}  // namespace tandem::comm
