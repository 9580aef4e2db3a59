// SPDX-License-Identifier: Apache-2.0
#include "kernels/embed.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class Embed : public GpuTest {};

template <typename T>
void compare(std::int64_t hidden, float scale) {
  auto& [cpu, cuda] = Devices::get();
  // Ids outside of the shard [100, 150) at both ends, and inert rows.
  Mirror<std::int32_t> tokens(cuda, {100, 149, 99, 150, 120, 0, 133});
  Mirror<std::int32_t> positions(cuda, {0, 5, 1, 2, -1, -1, 900});
  const auto rows = static_cast<std::int32_t>(tokens.host.size());
  Mirror<T> table(cuda, normal<T>(50 * hidden, 1.0f, 3)), out(cuda, poison<T>(rows * hidden)),
      normed(cuda, poison<T>(rows * hidden)), zeros(cuda, poison<T>(rows * hidden));
  Mirror<float> weight(cuda, normal<float>(hidden, 1.0f, 4));
  const auto run = [&]<typename D>(Context<D>& ctx) {
    StepView<D> step;
    step.num_tokens = rows;
    step.token_ids = tokens.on<D>();
    step.positions = positions.on<D>();
    EmbedArgs<T, D> args;
    args.step = &step;
    args.table = table.template on<D>();
    args.vocab_begin = 100;
    args.vocab_end = 150;
    args.scale = scale;
    args.out = out.template view<D>(rows, hidden);
    embed(ctx, args);
    args.norm = {weight.template on<D>(), 1e-5f};
    args.normed = normed.template view<D>(rows, hidden);
    args.zeros = zeros.template view<D>(rows, hidden);
    embed(ctx, args);
  };
  run(cpu);
  run(cuda);
  const std::string what = concat("hidden ", hidden);
  expect_close(cuda, out, scale == 1.0f ? 0.0f : kTolerance<T>, what);
  expect_close(cuda, normed, kTolerance<T>, what + " normed");
  expect_equal(cuda, zeros, what + " zeros");
  // The bits of the norm by itself.
  Mirror<T> apart(cuda, poison<T>(rows * hidden));
  AddNormArgs<T, Cuda> norm;
  norm.residual = out.template view<Cuda>(rows, hidden);
  norm.next_norm = {weight.on<Cuda>(), 1e-5f};
  norm.normed = apart.template view<Cuda>(rows, hidden);
  add_norm(cuda, norm);
  apart.host = download(cuda, normed.device.data(), rows * hidden);
  expect_equal(cuda, apart, what + " norm apart");
}

TEST_F(Embed, LooksUpTheShardNormsItAndZerosTheRest) {
  for_each_type([]<typename T>() {
    for (const std::int64_t hidden : {1, 37, 64, 576, 4096, 5120, 18432})
      for (const float scale : {1.0f, 45.25f}) compare<T>(hidden, scale);
  });
}

}  // namespace
}  // namespace tandem::kernels
