// SPDX-License-Identifier: Apache-2.0
#include "kernels/add_norm.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class AddNorm : public GpuTest {};

struct Case {
  std::int64_t rows, hidden;
  bool branch, bias, post_norm, next_norm, normed;
  float scale;
};

template <typename T>
struct Problem {
  explicit Problem(const Case& c) : spec(c) {
    auto& cuda = Devices::get().cuda;
    branch = {cuda, normal<T>(c.rows * c.hidden, 1.5f, 1)};
    residual = {cuda, normal<T>(c.rows * c.hidden, 2.0f, 2)};
    normed = {cuda, poison<T>(c.rows * c.hidden)};
    bias = {cuda, normal<float>(c.hidden, 1.0f, 3)};
    post = {cuda, normal<float>(c.hidden, 1.0f, 4)};
    next = {cuda, normal<float>(c.hidden, 1.0f, 5)};
  }
  template <Device D>
  AddNormArgs<T, D> args() {
    AddNormArgs<T, D> a;
    if (spec.branch) a.branch = branch.template cview<D>(spec.rows, spec.hidden);
    if (spec.bias) a.bias = bias.on<D>();
    if (spec.post_norm) a.post_norm = {post.on<D>(), 1e-5f};
    if (spec.next_norm) a.next_norm = {next.on<D>(), 1e-6f};
    a.scale = spec.scale;
    a.residual = residual.template view<D>(spec.rows, spec.hidden);
    if (spec.normed) a.normed = normed.template view<D>(spec.rows, spec.hidden);
    return a;
  }
  void compare(const std::string& what) {
    auto& cuda = Devices::get().cuda;
    expect_close(cuda, residual, kTolerance<T>, what + " residual");
    // One bf16 step of the residual is seen again in its norm, times its weight.
    if (spec.normed) expect_close(cuda, normed, 2 * kTolerance<T>, what + " normed");
  }
  Case spec;
  Mirror<T> branch, residual, normed;
  Mirror<float> bias, post, next;
};

constexpr Case kCases[] = {
    {1, 64, true, false, false, true, true, 1.0f},
    {3, 100, true, true, true, true, true, 0.22f},
    {2, 7, true, false, false, true, true, 1.0f},
    {5, 576, true, true, false, true, true, 1.0f},
    {1, 4096, true, false, true, true, true, 1.0f},
    {9, 4096, false, false, false, true, true, 1.0f},
    {4, 8192, true, false, false, false, true, 1.0f},
    {2, 5120, true, true, false, true, false, 1.0f},
    {2, 18432, true, true, true, true, true, 1.0f},  // three vectors of 16 bytes per thread
    {1, 16384, true, false, false, true, true, 1.0f},
};

TEST_F(AddNorm, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    auto& [cpu, cuda] = Devices::get();
    for (const Case& c : kCases) {
      Problem<T> problem(c);
      add_norm(cpu, problem.template args<Cpu>());
      add_norm(cuda, problem.template args<Cuda>());
      problem.compare(concat(name(dtype_of<T>), " ", c.rows, "x", c.hidden));
    }
  });
}

template <typename T>
void compare_projection(const Case& c, std::int64_t k, bool skinny = false) {
  auto& [cpu, cuda] = Devices::get();
  const std::string what = concat(name(dtype_of<T>), " ", c.rows, "x", c.hidden, " k ", k);
  Problem<T> problem(c);
  const MirrorWeight<T> weight(cpu, cuda, c.hidden, k, 6);
  Mirror<T> x(cuda, normal<T>(c.rows * k, 1.0f, 7)), scratch(cuda, poison<T>(c.rows * c.hidden));
  const auto run = [&]<typename D>(Context<D>& ctx) {
    AddNormArgs<T, D> args = problem.template args<D>();
    args.branch = scratch.template cview<D>(c.rows, c.hidden);
    project_add_norm(ctx, x.template cview<D>(c.rows, k), weight.template on<D>(),
                     scratch.template view<D>(c.rows, c.hidden), args);
  };
  const Mirror<T> before(cuda, problem.residual.host);
  run(cpu);
  Devices::get().on_cuda(run, skinny);
  problem.compare(what);
  // Once more on the same inputs: the same bits, so counters were left at zero and sums are
  // ordered.
  const auto first = download(cuda, problem.normed.device.data(), problem.normed.device.size());
  copy_on_device(cuda, problem.residual.device.data(), before.device.data(),
                 before.device.size_bytes());
  Devices::get().on_cuda(run, skinny);
  const auto second = download(cuda, problem.normed.device.data(), problem.normed.device.size());
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(T)), 0) << what;
}

TEST_F(AddNorm, ProjectionEqualsTheCpu) {
  for_each_type([]<typename T>() {
    for (const std::int64_t rows : {1, 2, 3, 4, 7, 8, 9, 16, 33, 64}) {
      compare_projection<T>({rows, 576, true, true, false, true, true, 1.0f}, 1536);
      compare_projection<T>({rows, 264, true, false, false, true, true, 0.5f}, 40);
    }
    for (const int rows : {2, 3, 8})
      compare_projection<T>({rows, 576, true, true, false, true, true, 1.0f}, 1536, true);
    compare_projection<T>({1, 4096, true, false, false, true, true, 1.0f}, 14336);
    compare_projection<T>({32, 4096, true, false, false, true, true, 1.0f}, 4096);
    // More rows than decode has: the matmul adds to the residual.
    compare_projection<T>({65, 576, true, false, false, true, true, 1.0f}, 1536);
    compare_projection<T>({130, 264, true, false, false, false, true, 0.5f}, 40);
    compare_projection<T>({70, 264, true, true, true, true, true, 0.5f}, 40);
    compare_projection<T>({2, 4096, true, false, true, true, true, 1.0f}, 512);
    compare_projection<T>({4, 1000, true, false, false, false, true, 1.0f}, 1792);
    compare_projection<T>({1, 100, true, false, false, true, true, 1.0f}, 104);
  });
}

}  // namespace
}  // namespace tandem::kernels
