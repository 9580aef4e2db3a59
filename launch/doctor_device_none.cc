// SPDX-License-Identifier: Apache-2.0
#include "launch/doctor_device.h"

#include "kernels/device/error.h"

namespace tandem::launch {

std::map<std::string, std::string> device_versions() { return {}; }

DeviceDiagnosis diagnose_gpus(Ranks&, const std::vector<Place>&) {
  return {{{"GPU collectives", Health::kRed, "this build has no CUDA",
            "configure with -DTANDEM_CUDA=ON, or use --device cpu"}},
          {}};
}

DeviceRates measure_gpu_rates(Ranks&, const std::vector<Place>&) {
  throw ConfigError("this build has no CUDA; configure with -DTANDEM_CUDA=ON, or use --device cpu");
}

}  // namespace tandem::launch
