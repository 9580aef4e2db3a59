// SPDX-License-Identifier: Apache-2.0
// A build with CUDA: GPUs where they are, CPUs where they are not.
#include "kernels/device/device_info.h"
#include "launch/engine_factory.h"
#include "launch/placement.h"

namespace tandem::launch {
namespace {

/// Why this machine's GPUs cannot be used and what to do; empty when they can.
std::string gpu_problem(const DeviceReport& report) {
  if (!report.problem.empty()) return report.problem;
  for (const DeviceInfo& device : report.devices)
    if (!device.unusable_because.empty()) return device.unusable_because;
  return {};
}

}  // namespace

std::string choose_device(Ranks& ranks, const std::string& wanted) {
  if (wanted == "cpu") return "cpu";
  const std::string problem = gpu_problem(query_devices());
  if (wanted == "cuda") ranks.control.together([&] { TANDEM_REQUIRE(problem.empty(), problem); });
  return ranks.control.min(problem.empty() ? 1 : 0) == 1 ? "cuda" : "cpu";
}

MadeEngine make_device_engine(Ranks& ranks, const std::string& device, const EngineOptions& options,
                              const runtime::ModelConfig& model,
                              const runtime::Checkpoint& checkpoint,
                              const runtime::EngineConfig& config) {
  if (device == "cpu") return make_cpu_engine(ranks, model, checkpoint, config);
  const DeviceReport report = query_devices();
  runtime::EngineConfig sizes = config;
  ranks.control.together([&] {
    sizes.cuda.device = choose_gpu(report, ranks.session.local_rank(), ranks.session.local_size(),
                                   options.allow_shared_gpu);
  });
  sizes.cuda.memory_utilization = options.gpu_memory_utilization;
  sizes.cuda.enforce_eager = options.enforce_eager;
  sizes.cuda.allow_shared_gpu = options.allow_shared_gpu;
  sizes.cuda.mem_sync_domains = options.mem_sync_domains;
  sizes.cuda.all_reduce = options.all_reduce;
  sizes.cuda.decode_matmul = options.decode_matmul;
  MadeEngine made;
  made.engine = runtime::make_cuda_engine(ranks.control, model, checkpoint, sizes, &made.load);
  made.watch = ranks.watchdog.watch(hooks_of(*made.engine));
  made.device_name = report.devices[static_cast<std::size_t>(sizes.cuda.device)].name;
  return made;
}

}  // namespace tandem::launch
