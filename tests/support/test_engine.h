// SPDX-License-Identifier: Apache-2.0
// The engine that a test program checks: on CPU ranks or on CUDA ranks, whichever source is linked
// (test_engine_cpu.cc, test_engine_cuda.cc), so that one suite serves both.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine_config.h"

namespace tandem::testing {

/// Empty, or why this machine cannot run the engine.
std::string engine_missing();

/// As `make_cpu_engine` and `make_cuda_engine`; ranks may share a GPU.
std::unique_ptr<runtime::Engine> make_engine(comm::ControlPlane& control,
                                             const runtime::ModelConfig& model,
                                             const runtime::Checkpoint& checkpoint,
                                             runtime::EngineConfig config);

/// This rank's first `count` logits of the last step's only sample, of a float32 engine.
std::vector<float> shard_logits(runtime::Engine& engine, std::int64_t count);

/// |got - expected| / |expected|.
inline double distance(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(got.at(i) - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace tandem::testing
