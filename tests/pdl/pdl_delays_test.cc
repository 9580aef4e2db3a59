// SPDX-License-Identifier: Apache-2.0
// The rule of programmatic dependent launch (kernels/device/cuda/launch.cuh), on whole steps. This
// program has a build of the kernels in which warps come late by chance, before the wait and after
// the trigger of every kernel: one that read before its wait, wrote too early or ended without
// having waited gives other logits than the same step with its kernels strictly one after another.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "runtime/engine_config.h"
#include "runtime/scheduler.h"
#include "support/model_shapes.h"
#include "support/mpi_world.h"
#include "support/test_engine.h"

namespace tandem::runtime {
namespace {

constexpr std::int32_t kTokens = 8;

class PdlDelays : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = tandem::testing::engine_missing(); !why.empty())
      GTEST_SKIP() << why;
  }

  /// Four layers in shapes that all fast kernels take.
  static ModelConfig model() {
    ModelConfig config = tandem::testing::with_fast_shapes(
        read_model_config(std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-9q3kv"));
    config.layers.resize(4, config.layers.front());
    return config;
  }

  std::unique_ptr<Engine> make(bool dependent, bool eager) {
    EngineConfig sizes;
    sizes.max_model_len = 256;
    sizes.max_num_seqs = 32;
    sizes.max_num_batched_tokens = 256;
    sizes.kv_cache_bytes = 64 << 20;
    sizes.kv_segment_bytes = 1 << 20;
    sizes.overlap = OverlapMode::kOff;
    sizes.cuda.programmatic_launch = dependent;
    sizes.cuda.enforce_eager = eager;
    // What is measured, and so what is chosen by it, must not differ between two engines.
    sizes.cuda.decode_matmul = "streaming";
    if (control_.size() > 1) sizes.cuda.all_reduce = "oneshot";
    return tandem::testing::make_engine(control_, model(), Checkpoint::dummy(model(), 1), sizes);
  }

  /// This rank's logits of every step of `batch` sequences, with the sampled tokens behind them.
  std::vector<std::vector<float>> steps(Engine& engine, int batch) {
    Scheduler scheduler({engine.limits(), false, {}});
    for (int i = 0; i < batch; ++i) {
      Request request;
      request.id = i;
      for (int t = 0; t < 3 + i % 5; ++t) request.prompt.push_back((17 * i + 5 * t) % 8192);
      request.params.max_tokens = kTokens + 1;
      request.params.ignore_eos = true;
      scheduler.add(std::move(request));
    }
    const std::int64_t width =
        parallel::split_evenly(model().vocab_size, parallel::kColumnUnit, 0, control_.size())
            .size();
    std::vector<std::vector<float>> all;
    while (!scheduler.idle()) {
      const BatchPlan plan = scheduler.plan();
      if (plan.num_tokens() == 0) break;
      engine.submit(plan);
      const StepOutput output = engine.collect();
      all.push_back(tandem::testing::shard_logits(engine, batch * width));
      for (const std::int32_t token : output.tokens)
        all.back().push_back(static_cast<float>(token));
      scheduler.commit(output);
    }
    return all;
  }

  comm::ControlPlane control_{tandem::testing::world()};
};

TEST_P(PdlDelays, LogitsHaveTheSameBits) {
  const int batch = GetParam();
  const auto want = steps(*make(false, true), batch);
  ASSERT_GE(want.size(), static_cast<std::size_t>(kTokens));
  for (const bool eager : {true, false}) {
    const auto engine = make(true, eager);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto got = steps(*engine, batch);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t step = 0; step < want.size(); ++step) {
        ASSERT_EQ(got[step].size(), want[step].size());
        ASSERT_EQ(std::memcmp(got[step].data(), want[step].data(), want[step].size() * 4), 0)
            << (eager ? "eager" : "graph") << ", repeat " << repeat << ", step " << step;
      }
    }
  }
}

std::string batch_name(const ::testing::TestParamInfo<int>& batch) {
  return "batch" + std::to_string(batch.param);
}
INSTANTIATE_TEST_SUITE_P(Batches, PdlDelays, ::testing::Values(1, 2, 8, 32), batch_name);

}  // namespace
}  // namespace tandem::runtime
