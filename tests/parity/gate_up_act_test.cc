// SPDX-License-Identifier: Apache-2.0
#include "kernels/gate_up_act.h"
#include "kernels/add_norm.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class GateUpAct : public GpuTest {};

template <typename T>
void compare(std::int64_t rows, std::int64_t intermediate, std::int64_t k, bool has_bias,
             GateActivation activation, bool skinny = false) {
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
  Devices::get().on_cuda(run, skinny);
  expect_close(cuda, out, 2 * kTolerance<T>,
               concat(name(dtype_of<T>), " ", rows, "x", intermediate, " k ", k));
}

TEST_F(GateUpAct, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    for (const std::int64_t rows : {1, 2, 3, 5, 8, 9, 16, 40, 64}) {
      compare<T>(rows, 1536, 576, false, GateActivation::kSilu);
      compare<T>(rows, 48, 72, true, GateActivation::kGeluTanh);
    }
    for (const std::int64_t rows : {2, 5, 8})
      compare<T>(rows, 1536, 576, true, GateActivation::kGelu, true);
    compare<T>(1, 1792, 4096, true, GateActivation::kGelu);
    compare<T>(32, 7168, 1024, true, GateActivation::kSilu);
    compare<T>(4, 16, 8, false, GateActivation::kSilu);
  });
}

/// A projection that may leave its norm to the matmul after it.
template <typename T>
void compare_deferred(std::int64_t rows, std::int64_t hidden, std::int64_t k,
                      float residual_size = 2.0f, bool skinny = false) {
  auto& [cpu, cuda] = Devices::get();
  const std::int64_t intermediate = 192;
  const MirrorWeight<T> down(cpu, cuda, hidden, k, 1), up(cpu, cuda, 2 * intermediate, hidden, 2);
  Mirror<T> x(cuda, normal<T>(rows * k, 1.0f, 3)),
      residual(cuda, normal<T>(rows * hidden, residual_size, 4)),
      branch(cuda, poison<T>(rows * hidden)), normed(cuda, poison<T>(rows * hidden)),
      scratch(cuda, poison<T>(rows * 2 * intermediate)), out(cuda, poison<T>(rows * intermediate));
  Mirror<float> norm(cuda, normal<float>(hidden, 1.0f, 5));
  const auto run = [&]<typename D>(Context<D>& ctx) {
    DeferredNorm<T, D> deferred;
    AddNormArgs<T, D> add;
    add.branch = branch.template cview<D>(rows, hidden);
    add.residual = residual.template view<D>(rows, hidden);
    add.next_norm = {norm.on<D>(), 1e-5f};
    add.normed = normed.template view<D>(rows, hidden);
    add.deferred = &deferred;
    project_add_norm(ctx, x.template cview<D>(rows, k), down.template on<D>(),
                     branch.template view<D>(rows, hidden), add);
    GateUpArgs<T, D> args;
    args.x = normed.template cview<D>(rows, hidden);
    args.deferred = &deferred;
    args.weight = &up.template on<D>();
    args.scratch = scratch.template view<D>(rows, 2 * intermediate);
    args.out = out.template view<D>(rows, intermediate);
    gate_up_act(ctx, args);
  };
  run(cpu);
  Devices::get().on_cuda(run, skinny);
  const std::string what = concat(name(dtype_of<T>), " ", rows, "x", hidden, " k ", k);
  expect_close(cuda, residual, kTolerance<T>, what + " residual");
  expect_close(cuda, out, 4 * kTolerance<T>, what);
}

TEST_F(GateUpAct, AppliesTheNormLeftToIt) {
  for_each_type([]<typename T>() {
    for (const std::int64_t rows : {1, 4, 8, 9, 16, 17, 32, 33, 64, 65}) {
      compare_deferred<T>(rows, 576, 320);
      compare_deferred<T>(rows, 8320, 64);
    }
    for (const std::int64_t rows : {2, 7, 8}) compare_deferred<T>(rows, 576, 320, 2.0f, true);
  });
}

/// Residuals whose products with the norm's weights are more than half precision holds.
TEST_F(GateUpAct, AppliesTheNormOfLargeResiduals) {
  for_each_type([]<typename T>() {
    for (const std::int64_t rows : {1, 3, 8})
      for (const bool skinny : {false, true}) compare_deferred<T>(rows, 4096, 64, 1e4f, skinny);
  });
}

}  // namespace
}  // namespace tandem::kernels
