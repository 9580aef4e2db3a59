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
  Mirror<T> table(cuda, normal<T>(50 * hidden, 1.0f, 3)), out(cuda, poison<T>(rows * hidden));
  const auto run = [&]<typename D>(Context<D>& ctx) {
    StepView<D> step;
    step.num_tokens = rows;
    step.token_ids = tokens.on<D>();
    step.positions = positions.on<D>();
    embed(ctx, EmbedArgs<T, D>{&step, table.template on<D>(), 100, 150, scale,
                               out.template view<D>(rows, hidden)});
  };
  run(cpu);
  run(cuda);
  expect_close(cuda, out, scale == 1.0f ? 0.0f : kTolerance<T>, concat("hidden ", hidden));
}

TEST_F(Embed, LooksUpTheShardAndZerosTheRest) {
  for_each_type([]<typename T>() {
    for (const std::int64_t hidden : {1, 37, 64, 576, 4096, 5120})
      for (const float scale : {1.0f, 45.25f}) compare<T>(hidden, scale);
  });
}

}  // namespace
}  // namespace tandem::kernels
