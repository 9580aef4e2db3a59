// SPDX-License-Identifier: Apache-2.0
// The answer of a build without CUDA.
#include "kernels/device/device_info.h"

namespace tandem {

DeviceReport query_devices(bool) {
  DeviceReport report;
  report.problem =
      "this build has no CUDA: use --device cpu, or configure with -DTANDEM_CUDA=ON where nvcc is "
      "installed";
  return report;
}

}  // namespace tandem
