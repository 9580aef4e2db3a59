// SPDX-License-Identifier: Apache-2.0
#include "launch/engine_factory.h"

#include <iomanip>
#include <sstream>

#include "kernels/device/log.h"

namespace tandem::launch {
namespace {

std::string megabytes(std::int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / 1e6 << " MB";
  return text.str();
}

}  // namespace

void log_load(const EngineOptions& options, const MadeEngine& made) {
  if (!options.verbose) return;
  log_info("read ", made.load.bytes_read >> 10, " KiB of the model's files, holds ",
           made.load.weight_bytes >> 10, " KiB of weights on ", made.device_name, ", ready after ",
           made.load.seconds, " s");
}

comm::DeviceHooks hooks_of(runtime::Engine& engine) {
  return {[&engine] { return engine.device_error(); }, [&engine] { engine.abandon(); }};
}

MadeEngine make_cpu_engine(Ranks& ranks, const runtime::ModelConfig& model,
                           const runtime::Checkpoint& checkpoint,
                           const runtime::EngineConfig& config) {
  MadeEngine made;
  made.engine = runtime::make_cpu_engine(ranks.control, model, checkpoint, config, &made.load);
  made.watch = ranks.watchdog.watch(hooks_of(*made.engine));
  made.device_name =
      concat("cpu (", config.threads, config.threads == 1 ? " thread)" : " threads)");
  const std::int64_t peak = ranks.control.max(made.load.peak_resident_bytes);
  log_info("memory of this rank: weights ", megabytes(made.load.weight_bytes), ", KV cache up to ",
           megabytes(made.load.kv_cache_bytes),
           "; resident so far, on the largest rank: ", megabytes(peak));
  return made;
}

}  // namespace tandem::launch
