// SPDX-License-Identifier: Apache-2.0
// A decode chain gives the same bits with and without programmatic dependent launch, eager and as a
// graph, also while copies on another stream disturb its timing: a kernel that read before its wait
// or wrote too early would show.
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/cuda/graph.h"
#include "parity/gpu.h"
#include "tests/bench/decode_chain.h"

namespace tandem::bench {
namespace {

using tandem::testing::download;

class Pdl : public tandem::testing::GpuTest {};

CudaOptions with_pdl(bool on) {
  CudaOptions options;
  options.programmatic_launch = on;
  options.decode_matmul = DecodeMatmul::kStreaming;
  return options;
}

TEST_F(Pdl, ChainGivesTheSameBits) {
  Context<Cuda> plain(with_pdl(false)), dependent(with_pdl(true));
  plain.cublaslt().set_tuning(false);
  dependent.cublaslt().set_tuning(false);
  const RandomSource random(plain);
  ShardSizes sizes;
  sizes.tensor_parallel = 8;
  sizes.layers = 3;
  Model model(plain, random, sizes);
  const Buffer<T, Cuda> noise = random.make(64 << 20), noise_copy = random.make(64 << 20);
  for (const int rows : {1, 4, 8, 16, 32, 64}) {
    Batch batch(plain, random, sizes, rows, 200);
    const Buffer<T, Cuda> residual = random.make(batch.residual.size()),
                          normed = random.make(batch.normed.size());
    const auto run = [&](Context<Cuda>& ctx, const std::function<void(Chain&)>& body) {
      copy_on_device(ctx, batch.residual.data(), residual.data(), residual.size_bytes());
      copy_on_device(ctx, batch.normed.data(), normed.data(), normed.size_bytes());
      fill_zero(ctx, batch.logits.data(), batch.logits.size_bytes());
      Chain chain(ctx, model, batch);
      body(chain);
      return download(ctx, batch.logits.data(), batch.logits.size());
    };
    const auto all = [](Chain& chain) { chain.all(); };
    const std::vector<float> want = run(plain, all);
    Chain captured(dependent, model, batch);
    Graph<Cuda> graph = Graph<Cuda>::capture(dependent, [&] { captured.all(); });
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto disturb = [&] {
        for (int i = 0; i < repeat % 4; ++i)
          TANDEM_CHECK(cudaMemcpyAsync(noise_copy.data(), noise.data(),
                                       static_cast<std::size_t>(noise.size_bytes()),
                                       cudaMemcpyDeviceToDevice, dependent.copy().handle()));
      };
      disturb();
      const std::vector<float> eager = run(dependent, all);
      ASSERT_EQ(std::memcmp(eager.data(), want.data(), want.size() * sizeof(float)), 0)
          << rows << " rows, eager, repeat " << repeat;
      disturb();
      const std::vector<float> replayed =
          run(dependent, [&](Chain&) { graph.launch(dependent.compute()); });
      ASSERT_EQ(std::memcmp(replayed.data(), want.data(), want.size() * sizeof(float)), 0)
          << rows << " rows, graph, repeat " << repeat;
    }
    dependent.copy().synchronize();
  }
}

}  // namespace
}  // namespace tandem::bench
