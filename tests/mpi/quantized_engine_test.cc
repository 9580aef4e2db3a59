// SPDX-License-Identifier: Apache-2.0
// CPU ranks that keep a file's weights in few bits give the logits of those weights in float32,
// nearer than ranks that make bfloat16 of them, at every number of ranks that can be, and hold
// fewer bytes.
#include <gtest/gtest.h>

#include <filesystem>

#include "parallel/shard.h"
#include "runtime/engine_config.h"
#include "runtime/model_report.h"
#include "runtime/weights/checkpoint.h"
#include "support/mpi_world.h"
#include "support/test_engine.h"

namespace tandem::runtime {
namespace {

struct Result {
  std::vector<float> logits;  ///< Of the prompt's last token and of the steps after it, joined.
  LoadReport load;
};

/// A prompt in one step, which is long enough for values to be made of the few bits, then tokens
/// one by one.
Result run(comm::ControlPlane& control, DType dtype, bool keep_bits) {
  const auto path = std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-quants.gguf";
  const ModelConfig config = read_model_config(path);
  const Checkpoint checkpoint = Checkpoint::open(path);
  EngineConfig sizes;
  sizes.dtype = dtype;
  sizes.keep_bits = keep_bits;
  sizes.max_model_len = 128;
  sizes.max_num_seqs = 2;
  sizes.max_num_batched_tokens = 64;
  sizes.kv_cache_bytes = 64 << 20;
  sizes.kv_segment_bytes = 1 << 16;
  Result result;
  const auto engine = make_cpu_engine(control, config, checkpoint, sizes, &result.load);
  const parallel::Range mine =
      parallel::Shard(shard_shape(config), control.rank(), control.size()).vocab();
  for (std::int32_t step = 0, position = 0; step < 6; ++step) {
    BatchPlan plan;
    if (step == 0) plan.inits.push_back({0, {}, {}, {}, {}, {}});
    if (step == 0) plan.assigns.push_back({0, 0, 1});
    plan.mapped_chunks = 2;
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < (step == 0 ? 40 : 1); ++i) tokens.push_back((position + i) * 37 % 320);
    plan.segments.push_back({0, position, tokens, true, 0, {}});
    position += static_cast<std::int32_t>(tokens.size());
    plan.max_kv_tokens = position;
    engine->submit(plan);
    engine->collect();
    const std::vector<float> part = tandem::testing::shard_logits(*engine, mine.size());
    const std::string bytes(reinterpret_cast<const char*>(part.data()),
                            part.size() * sizeof(float));
    for (const std::string& shard : control.all_gather(bytes)) {
      const auto* values = reinterpret_cast<const float*>(shard.data());
      result.logits.insert(result.logits.end(), values, values + shard.size() / sizeof(float));
    }
  }
  return result;
}

TEST(QuantizedEngine, GivesTheLogitsOfItsWeights) {
  comm::ControlPlane control(tandem::testing::world());
  const auto path = std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-quants.gguf";
  if (control.size() > parallel::max_tensor_parallel_size(shard_shape(read_model_config(path))))
    GTEST_SKIP() << "the model has too few heads for this many ranks";
  const Result exact = run(control, DType::kF32, true), dense = run(control, DType::kBF16, false),
               kept = run(control, DType::kBF16, true);
  EXPECT_EQ(exact.logits.size(), 6u * 320);
  const double of_dense = tandem::testing::distance(dense.logits, exact.logits);
  const double of_kept = tandem::testing::distance(kept.logits, exact.logits);
  EXPECT_LT(of_dense, 0.06);
  EXPECT_LT(of_kept, 1.1 * of_dense);
  EXPECT_GT(of_kept, 1e-4) << "is this bfloat16 at all?";
  EXPECT_LT(kept.load.weight_bytes, dense.load.weight_bytes);
  EXPECT_EQ(kept.load.bytes_read, dense.load.bytes_read);
  EXPECT_EQ(kept.load.kept_format, "q8_0");
  EXPECT_EQ(dense.load.kept_format, "");
}

}  // namespace
}  // namespace tandem::runtime
