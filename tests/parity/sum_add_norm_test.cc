// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sum_add_norm.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class SumAddNorm : public GpuTest {};

struct Case {
  int parts;
  std::int64_t rows, hidden;
  bool bias, post_norm, next_norm;
  float scale;
};

template <typename T>
void compare(const Case& c) {
  auto& [cpu, cuda] = Devices::get();
  const std::int64_t size = c.rows * c.hidden;
  std::vector<Buffer<T, Cuda>> parts;
  SumParts<T> sum;
  sum.size = c.parts;
  std::vector<float> total(static_cast<std::size_t>(size), 0.0f);
  for (int r = 0; r < c.parts; ++r) {
    const std::vector<T> part = normal<T>(size, 1.0f, 10u + static_cast<unsigned>(r));
    for (std::size_t i = 0; i < part.size(); ++i) total[i] += static_cast<float>(part[i]);
    parts.push_back(upload(cuda, part));
    sum.parts[static_cast<std::size_t>(r)] = parts.back().data();
  }
  std::vector<T> branch;
  for (const float value : total) branch.push_back(T(value));
  Mirror<T> residual(cuda, normal<T>(size, 2.0f, 1)), normed(cuda, poison<T>(size));
  Mirror<float> bias(cuda, normal<float>(c.hidden, 1.0f, 3)),
      post(cuda, normal<float>(c.hidden, 1.0f, 4)), next(cuda, normal<float>(c.hidden, 1.0f, 5));
  const auto args_on = [&]<typename D>(D) {
    AddNormArgs<T, D> args;
    if (c.bias) args.bias = bias.on<D>();
    if (c.post_norm) args.post_norm = {post.on<D>(), 1e-5f};
    if (c.next_norm) args.next_norm = {next.on<D>(), 1e-6f};
    args.scale = c.scale;
    args.residual = residual.template view<D>(c.rows, c.hidden);
    args.normed = normed.template view<D>(c.rows, c.hidden);
    return args;
  };
  AddNormArgs<T, Cpu> want = args_on(Cpu{});
  want.branch = {branch.data(), c.rows, c.hidden};
  add_norm(cpu, want);
  const AddNormArgs<T, Cuda> args = args_on(Cuda{});
  ASSERT_TRUE(can_sum_add_norm(args));
  sum_add_norm(cuda, cuda.comm(), sum, args);
  cuda.comm().synchronize();
  const std::string what = concat(name(dtype_of<T>), " ", c.parts, "x", c.rows, "x", c.hidden);
  expect_close(cuda, residual, kTolerance<T>, what + " residual");
  expect_close(cuda, normed, 2 * kTolerance<T>, what + " normed");
}

TEST_F(SumAddNorm, EqualsTheCpuOnTheSum) {
  for_each_type([]<typename T>() {
    for (const Case& c :
         {Case{2, 3, 4096, false, false, true, 1.0f}, Case{1, 2, 64, true, true, true, 0.25f},
          Case{3, 5, 576, true, false, true, 1.0f}, Case{8, 4, 8192, false, true, true, 1.0f},
          Case{2, 2, 5120, true, false, false, 0.5f}})
      compare<T>(c);
  });
}

TEST_F(SumAddNorm, RowsThatDoNotFitAreRefused) {
  auto& cuda = Devices::get().cuda;
  const Buffer<float, Cuda> memory(2 * 16384);
  AddNormArgs<float, Cuda> args;
  args.residual = memory.view(2, 66);
  args.normed = memory.view(2, 66);
  EXPECT_FALSE(can_sum_add_norm(args));  // No whole packs.
  args.residual = memory.view(2, 8196);
  args.normed = memory.view(2, 8196);
  EXPECT_FALSE(can_sum_add_norm(args));  // Longer than a block's registers.
  args.residual = memory.view(2, 8192);
  args.normed = memory.view(2, 8192);
  EXPECT_TRUE(can_sum_add_norm(args));
  cuda.compute().synchronize();
}

}  // namespace
}  // namespace tandem::kernels
