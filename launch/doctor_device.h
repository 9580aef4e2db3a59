// SPDX-License-Identifier: Apache-2.0
// What `doctor` asks of GPUs beyond `query_devices`. One body per build: doctor_device_none.cc
// without CUDA, doctor_device_cuda.cc with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/command.h"
#include "launch/doctor_check.h"
#include "launch/placement.h"
#include "launch/plan/rates.h"

namespace tandem::launch {

/// Versions of device libraries ("NCCL", ...), to be compared over ranks. Not collective.
std::map<std::string, std::string> device_versions();

struct DeviceDiagnosis {
  std::vector<Check> checks;               ///< NVLink multicast state, peer memory, ...
  std::vector<CollectiveRow> collectives;  ///< With checked sums.
};

/// Uses this rank's GPU of `places`. Collective; throws Error when a collective gives wrong sums.
DeviceDiagnosis diagnose_gpus(Ranks& ranks, const std::vector<Place>& places);

/// How fast this job's GPUs multiply, attend and talk. Collective.
DeviceRates measure_gpu_rates(Ranks& ranks, const std::vector<Place>& places);

}  // namespace tandem::launch
