// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cpu/context.h"
#include "runtime/device_engine.h"
#include "support/test_engine.h"

namespace tandem::testing {

std::string engine_missing() { return {}; }

std::unique_ptr<runtime::Engine> make_engine(comm::ControlPlane& control,
                                             const runtime::ModelConfig& model,
                                             const runtime::Checkpoint& checkpoint,
                                             runtime::EngineConfig config) {
  runtime::LoadReport report;
  return make_cpu_engine(control, model, checkpoint, config, &report);
}

std::vector<float> shard_logits(runtime::Engine& engine, std::int64_t count) {
  const auto* full = dynamic_cast<runtime::DeviceEngine<float, Cpu>*>(&engine);
  const auto* half = dynamic_cast<runtime::DeviceEngine<BFloat16, Cpu>*>(&engine);
  const float* logits = full != nullptr ? full->sampler().shard_logits().data()
                                        : half->sampler().shard_logits().data();
  return {logits, logits + count};
}

}  // namespace tandem::testing
