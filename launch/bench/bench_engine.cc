// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/bench_engine.h"

#include <cstdio>

namespace tandem::launch {

BenchEngine make_bench_engine(Ranks& ranks, const EngineOptions& options) {
  ModelSource source = open_model(ranks, options);
  const std::string device = choose_device(ranks, options.device);
  const runtime::EngineConfig config = engine_config(ranks, options, source.config, device);
  MadeEngine made = make_engine(ranks, device, options, source.config, source.checkpoint, config);
  return {std::move(source), device, config, std::move(made)};
}

std::string case_label(const std::string& name, const ModelSource& source, DType dtype,
                       const runtime::LoadReport& load, int ranks) {
  return concat(name.empty() ? source.config.name : name, " ",
                load.kept_format.empty() ? std::string(short_name(dtype)) : load.kept_format, " tp",
                ranks);
}

void publish(const BenchResults& results, const std::string& path) {
  if (path != "-") std::fputs(results.table().c_str(), stdout);
  if (!path.empty()) results.write(path);
}

}  // namespace tandem::launch
