// SPDX-License-Identifier: Apache-2.0
// What every bench of the engine begins and ends with: the model loaded as the options say, the
// first words of a case's name, and results where `--json` wants them. Collective where it loads.
#pragma once

#include <string>

#include "launch/bench/results.h"
#include "launch/engine_factory.h"
#include "launch/model_source.h"

namespace tandem::launch {

struct BenchEngine {
  ModelSource source;
  std::string device;  ///< "cpu" or "cuda".
  runtime::EngineConfig config;
  MadeEngine made;
};

/// Opens and loads the model of `options` on every rank.
BenchEngine make_bench_engine(Ranks& ranks, const EngineOptions& options);

/// "llama-3-8b bf16 tp2", or "smollm2-135m q4_1 tp2" where weights stayed in few bits; `name` takes
/// the place of the model's own unless it is empty.
std::string case_label(const std::string& name, const ModelSource& source, DType dtype,
                       const runtime::LoadReport& load, int ranks);

/// Shows the table on standard output and writes the JSON to `path`. An empty path: no JSON; "-":
/// JSON on standard output, and no table.
void publish(const BenchResults& results, const std::string& path);

}  // namespace tandem::launch
