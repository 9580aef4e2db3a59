// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/cuda/stamps.h"
#include "kernels/device/device_info.h"
#include "kvcache/virtual_range_cuda.h"
#include "runtime/device_engine.h"
#include "support/mpi_world.h"
#include "support/test_engine.h"

namespace tandem::testing {

std::string engine_missing() {
  const DeviceReport report = query_devices();
  return report.problem.empty() ? report.devices[0].unusable_because : report.problem;
}

std::unique_ptr<runtime::Engine> make_engine(comm::ControlPlane& control,
                                             const runtime::ModelConfig& model,
                                             const runtime::Checkpoint& checkpoint,
                                             runtime::EngineConfig config) {
  config.cuda.device = world().local_rank() % static_cast<int>(query_devices().devices.size());
  config.cuda.allow_shared_gpu = true;
  config.cuda.memory_utilization = 0.2;
  runtime::LoadReport report;
  return make_cuda_engine(control, model, checkpoint, config, &report);
}

std::vector<float> shard_logits(runtime::Engine& engine, std::int64_t count) {
  const auto* full = dynamic_cast<runtime::DeviceEngine<float, Cuda>*>(&engine);
  const auto* half = dynamic_cast<runtime::DeviceEngine<BFloat16, Cuda>*>(&engine);
  const auto& logits =
      full != nullptr ? full->sampler().shard_logits() : half->sampler().shard_logits();
  std::vector<float> host(static_cast<std::size_t>(count));
  TANDEM_CHECK(
      cudaMemcpy(host.data(), logits.data(), host.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace tandem::testing
