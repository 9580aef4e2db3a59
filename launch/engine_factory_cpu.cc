// SPDX-License-Identifier: Apache-2.0
// A build without CUDA.
#include "launch/engine_factory.h"

namespace tandem::launch {

std::string choose_device(Ranks&, const std::string& wanted) {
  TANDEM_REQUIRE(wanted != "cuda",
                 "this build of tandem has no CUDA engine; configure it where nvcc is found "
                 "(cmake -DTANDEM_CUDA=ON), or use --device cpu");
  return "cpu";
}

MadeEngine make_device_engine(Ranks& ranks, const std::string&, const EngineOptions&,
                              const runtime::ModelConfig& model,
                              const runtime::Checkpoint& checkpoint,
                              const runtime::EngineConfig& config) {
  return make_cpu_engine(ranks, model, checkpoint, config);
}

}  // namespace tandem::launch
