// SPDX-License-Identifier: Apache-2.0
#include "kernels/head.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class Head : public GpuTest {};

template <typename T>
void compare(int samples, std::int64_t hidden, std::int64_t vocab, float scale, float softcap) {
  auto& [cpu, cuda] = Devices::get();
  const std::int64_t rows = 2 * samples + 1;
  const MirrorWeight<T> weight(cpu, cuda, vocab, hidden, 1);
  Mirror<T> normed(cuda, normal<T>(rows * hidden, 1.0f, 2)),
      gathered(cuda, poison<T>(samples * hidden));
  Mirror<float> logits(cuda, poison<float>(samples * vocab));
  std::vector<std::int32_t> which;
  for (int i = 0; i < samples; ++i) which.push_back(2 * (samples - i));
  Mirror<std::int32_t> sample_rows(cuda, which);
  const auto run = [&]<typename D>(Context<D>& ctx) {
    HeadArgs<T, D> args;
    args.samples = {samples, sample_rows.on<D>(), nullptr};
    args.normed = normed.template cview<D>(rows, hidden);
    args.weight = &weight.template on<D>();
    args.scale = scale;
    args.softcap = softcap;
    args.gathered = gathered.template view<D>(samples, hidden);
    args.logits = logits.view<D>(samples, vocab);
    head(ctx, args);
  };
  run(cpu);
  run(cuda);
  // Products of T are exact in float: only the order of the sum differs.
  expect_close(cuda, logits, 1e-4f, concat(name(dtype_of<T>), " samples ", samples));
}

TEST_F(Head, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    for (const int samples : {1, 2, 5, 8, 9, 30}) compare<T>(samples, 576, 1111, 1.0f, 0.0f);
    compare<T>(3, 104, 4097, 0.125f, 30.0f);
    compare<T>(20, 104, 64, 2.0f, 5.0f);
    compare<T>(1, 4096, 16032, 1.0f, 0.0f);
  });
}

}  // namespace
}  // namespace tandem::kernels
