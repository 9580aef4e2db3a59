// SPDX-License-Identifier: Apache-2.0
// A build without CUDA.
#include "kernels/device/error.h"
#include "launch/bench/domains_data.h"

namespace tandem::bench {

DomainsData measure_domains(const DomainsOptions&) {
  throw ConfigError(
      "this build of tandem has no CUDA, and only GPUs have memory synchronization domains: "
      "configure it where nvcc is found (cmake -DTANDEM_CUDA=ON)");
}

}  // namespace tandem::bench
