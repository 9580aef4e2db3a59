// SPDX-License-Identifier: Apache-2.0
#include "launch/engine_factory.h"

namespace tandem::launch {

MadeEngine make_cpu_engine(Ranks& ranks, const runtime::ModelConfig& model,
                           const runtime::Checkpoint& checkpoint,
                           const runtime::EngineConfig& config) {
  MadeEngine made;
  made.engine = runtime::make_cpu_engine(ranks.control, model, checkpoint, config, &made.load);
  made.device_name = concat("cpu (", config.threads, config.threads == 1 ? " thread)" : " threads)");
  return made;
}

}  // namespace tandem::launch
