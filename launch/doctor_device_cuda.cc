// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <cstdlib>
#include <optional>

#include "comm/cuda_communicator.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/cuda/stamps.h"
#include "launch/collective_probe.h"
#include "launch/doctor_device.h"
#include "launch/plan/rate_probe.h"

namespace tandem::launch {
namespace {

std::string version_of_nccl(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

/// NVLink multicast (NVLS) fails to start on machines without a fabric manager or the right
/// capabilities, and nothing of Tandem needs it: the communicator switches it off unless told.
Check multicast_check() {
  const char* value = std::getenv("NCCL_NVLS_ENABLE");
  if (value == nullptr || std::string(value) == "0")
    return {"NVLink multicast", Health::kGreen, "off", ""};
  return {"NVLink multicast", Health::kYellow,
          concat("NCCL_NVLS_ENABLE=", value, ": NCCL may fail or hang while it sets it up"),
          "unset NCCL_NVLS_ENABLE, or export NCCL_NVLS_ENABLE=0"};
}

}  // namespace

std::map<std::string, std::string> device_versions() {
  int loaded = 0;
  ncclGetVersion(&loaded);
  return {{"NCCL", concat(version_of_nccl(loaded), " (built with ", NCCL_MAJOR, ".", NCCL_MINOR,
                          ".", NCCL_PATCH, ")")}};
}

namespace {

/// This rank's GPU and its communicator.
struct Gpu {
  std::optional<Context<Cuda>> ctx;
  std::optional<comm::Communicator<Cuda>> communicator;

  Gpu(Ranks& ranks, const std::vector<Place>& places) {
    CudaOptions options;
    options.device = places[static_cast<std::size_t>(ranks.session.rank())].gpu;
    ranks.control.together([&] { ctx.emplace(options); });
    comm::CudaCommunicatorOptions how;
    for (const Place& a : places)
      for (const Place& b : places)
        how.allow_shared_gpu |= a.rank != b.rank && a.gpu_uuid == b.gpu_uuid;
    if (ranks.control.size() > 1) communicator.emplace(*ctx, ranks.control, how);
  }
};

}  // namespace

DeviceDiagnosis diagnose_gpus(Ranks& ranks, const std::vector<Place>& places) {
  DeviceDiagnosis result;
  result.checks.push_back(multicast_check());
  std::optional<Gpu> gpu;
  comm::DeviceWatch watch;
  try {
    comm::Progress& progress = ranks.watchdog.progress();
    progress.enter(comm::StageKind::kLoad, "doctor: connecting the GPUs");
    gpu.emplace(ranks, places);
    comm::Communicator<Cuda>& communicator = *gpu->communicator;
    watch = ranks.watchdog.watch({[&communicator] { return communicator.async_error(); },
                                  [&communicator] { communicator.raise_error(); }});
    progress.enter(comm::StageKind::kStep, "doctor: all-reduce of the GPUs");
    result.collectives = probe_all_reduce(*gpu->ctx, communicator, ranks.control, "cuda");
  } catch (const CodedError& error) {
    ranks.control.fault(error.what());  // of this rank alone; while the GPU may still be busy
    throw;
  }
  result.checks.push_back(
      {"GPU collectives", Health::kGreen, "sums over the GPUs are right at all sizes", ""});
  return result;
}

DeviceRates measure_gpu_rates(Ranks& ranks, const std::vector<Place>& places) {
  ranks.watchdog.progress().enter(comm::StageKind::kLoad, "doctor: rates of the GPUs");
  const Place& mine = places[static_cast<std::size_t>(ranks.session.rank())];
  const DeviceReport devices = query_devices();
  DeviceRates rates;
  rates.device = "cuda";
  rates.name = mine.gpu_name;
  rates.ranks = ranks.control.size();
  rates.memory_bytes =
      static_cast<double>(devices.devices.at(static_cast<std::size_t>(mine.gpu)).total_bytes);
  Gpu gpu(ranks, places);
  RateProbe<Cuda>(*gpu.ctx, ranks.control)
      .measure(gpu.communicator ? &*gpu.communicator : nullptr, rates);
  return rates;
}

}  // namespace tandem::launch
