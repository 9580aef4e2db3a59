// SPDX-License-Identifier: Apache-2.0
#include "kernels/gate_up_act.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class GateUpAct : public GpuTest {};

template <typename T>
void compare(std::int64_t rows, std::int64_t intermediate, std::int64_t k, bool has_bias,
             GateActivation activation) {
  auto& [cpu, cuda] = Devices::get();
  const MirrorWeight<T> weight(cpu, cuda, 2 * intermediate, k, 1);
  Mirror<T> x(cuda, normal<T>(rows * k, 1.0f, 2)), out(cuda, poison<T>(rows * intermediate)),
      scratch(cuda, poison<T>(rows * 2 * intermediate));
  Mirror<float> bias(cuda, normal<float>(2 * intermediate, 1.0f, 3));
  const auto run = [&]<typename D>(Context<D>& ctx) {
    GateUpArgs<T, D> args;
    args.x = x.template cview<D>(rows, k);
    args.weight = &weight.template on<D>();
    if (has_bias) args.bias = bias.on<D>();
    args.activation = activation;
    args.scratch = scratch.template view<D>(rows, 2 * intermediate);
    args.out = out.template view<D>(rows, intermediate);
    gate_up_act(ctx, args);
  };
  run(cpu);
  run(cuda);
  expect_close(cuda, out, 2 * kTolerance<T>,
               concat(name(dtype_of<T>), " ", rows, "x", intermediate, " k ", k));
}

TEST_F(GateUpAct, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    for (const std::int64_t rows : {1, 2, 3, 5, 8, 9, 40}) {
      compare<T>(rows, 1536, 576, false, GateActivation::kSilu);
      compare<T>(rows, 48, 72, true, GateActivation::kGeluTanh);
    }
    compare<T>(1, 1792, 4096, true, GateActivation::kGelu);
    compare<T>(4, 16, 8, false, GateActivation::kSilu);
  });
}

}  // namespace
}  // namespace tandem::kernels
