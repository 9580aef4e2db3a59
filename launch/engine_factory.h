// SPDX-License-Identifier: Apache-2.0
// The one place that chooses a device at run time. `engine_factory_cpu.cc` or
// `engine_factory_cuda.cc` is built, never both, so a CPU-only program knows nothing of CUDA.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/command.h"
#include "launch/engine_options.h"
#include "runtime/engine_config.h"

namespace tandem::launch {

/// "cpu" or "cuda" for `--device auto|cpu|cuda`, agreed over all ranks. Collective. ConfigError
/// when CUDA is asked for and this build or this machine has none.
std::string choose_device(Ranks& ranks, const std::string& wanted);

struct MadeEngine {
  std::unique_ptr<runtime::Engine> engine;
  comm::DeviceWatch watch;               ///< The watchdog looks after the engine's device.
  std::string device_name;               ///< For people: "cpu (2 threads)", "NVIDIA H200".
  runtime::LoadReport load;              ///< Of this rank.
  std::vector<std::int64_t> bytes_read;  ///< Of the checkpoint, by rank; equal on all ranks.
};

/// What the watchdog may ask of `engine`, which outlives the hooks.
comm::DeviceHooks hooks_of(runtime::Engine& engine);

/// Loads this rank's slice on `device`, and logs how evenly the model is dealt before and what
/// each rank read after. Collective; a fault on one rank is thrown on all.
MadeEngine make_engine(Ranks& ranks, const std::string& device, const EngineOptions& options,
                       const runtime::ModelConfig& model, const runtime::Checkpoint& checkpoint,
                       const runtime::EngineConfig& config);

/// `make_engine` without what it logs: the half that depends on the build.
MadeEngine make_device_engine(Ranks& ranks, const std::string& device, const EngineOptions& options,
                              const runtime::ModelConfig& model,
                              const runtime::Checkpoint& checkpoint,
                              const runtime::EngineConfig& config);

/// The engine of CPU ranks; shared by both factories.
MadeEngine make_cpu_engine(Ranks& ranks, const runtime::ModelConfig& model,
                           const runtime::Checkpoint& checkpoint,
                           const runtime::EngineConfig& config);

}  // namespace tandem::launch
