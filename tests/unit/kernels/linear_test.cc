// SPDX-License-Identifier: Apache-2.0
// CPU matrix products, through oneDNN and through our own loops, against sums in double.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

template <typename T>
std::vector<T> normal(std::int64_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<T> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(T(distribution(generator)));
  return values;
}

template <typename T>
Buffer<T, Cpu> copy_of(const std::vector<T>& values) {
  Buffer<T, Cpu> buffer(static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

struct Shape {
  std::int64_t m, n, k;
};

/// Outputs wider than the weight keep their other columns.
template <typename T, typename Out, typename Multiply>
void expect_product(const Shape& s, float tolerance, const Multiply& multiply) {
  const auto w = normal<T>(s.n * s.k, 1), x = normal<T>(s.m * s.k, 2);
  std::vector<Out> y(static_cast<std::size_t>(s.m * s.n), Out(77.0f));
  multiply(w, TensorView<const T, Cpu>(x.data(), s.m, s.k),
           TensorView<Out, Cpu>(y.data(), s.m, s.n));
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < s.k; ++c)
        sum += double{x[static_cast<std::size_t>(i * s.k + c)]} *
               double{w[static_cast<std::size_t>(j * s.k + c)]};
      ASSERT_NEAR(static_cast<float>(y[static_cast<std::size_t>(i * s.n + j)]), sum,
                  tolerance * (1 + std::fabs(sum)))
          << "[" << s.m << "," << s.k << "] x [" << s.n << "] at " << i << "," << j;
    }
}

const std::vector<Shape> kShapes = {{1, 64, 32},  {1, 1, 1},    {1, 130, 70}, {2, 63, 33},
                                    {3, 200, 96}, {4, 65, 128}, {5, 97, 31},  {17, 320, 144}};

template <typename T, typename Out>
void expect_linear(float tolerance) {
  Context<Cpu> ctx(2);
  for (const Shape& shape : kShapes)
    expect_product<T, Out>(shape, tolerance, [&](const auto& w, auto x, auto y) {
      const LinearWeight<T, Cpu> weight(ctx, copy_of(w), shape.n, shape.k);
      matmul<T, Out>(ctx, x, weight, y);
    });
}

TEST(Linear, EqualsSumsInDouble) {
  expect_linear<float, float>(2e-5f);
  expect_linear<BFloat16, BFloat16>(8e-3f);
  expect_linear<BFloat16, float>(2e-5f);
  expect_linear<Float16, Float16>(1e-3f);
}

TEST(PackedMatmul, EqualsSumsInDouble) {
  for (const Shape& shape : kShapes)
    expect_product<BFloat16, float>(shape, 2e-5f, [&](const auto& w, auto x, auto y) {
      const cpu::PackedShape packed_shape{shape.n, shape.k};
      std::vector<BFloat16> packed(static_cast<std::size_t>(packed_shape.size()), BFloat16(NAN));
      cpu::pack(packed_shape, w.data(), packed.data());
      cpu::packed_matmul(packed_shape, packed.data(), x, y);
    });
}

/// Every way in which rows are dealt to passes, with the weight's last block whole and cut.
TEST(Bf16DotMatmul, EqualsSumsInDouble) {
  if (!cpu::has_bf16_dot()) GTEST_SKIP() << "this CPU has no bfloat16 dot products";
  for (std::int64_t m = 1; m <= cpu::kMaxDotRows; ++m)
    for (const Shape& shape : {Shape{m, 128, 64}, Shape{m, 70, 33}})
      expect_product<BFloat16, float>(shape, 2e-5f, [&](const auto& w, auto x, auto y) {
        const cpu::PackedShape packed_shape{shape.n, shape.k};
        std::vector<BFloat16> packed(static_cast<std::size_t>(packed_shape.size()), BFloat16(NAN));
        cpu::pack(packed_shape, w.data(), packed.data());
        cpu::bf16_dot_matmul(packed_shape, packed.data(), x, y);
      });
}

template <typename T>
void expect_rows() {
  Context<Cpu> ctx(1);
  const auto w = normal<T>(70 * 37, 3);
  const LinearWeight<T, Cpu> weight(ctx, copy_of(w), 70, 37);
  for (const std::int64_t row : {0, 1, 63, 64, 69}) {
    std::vector<T> got(37);
    weight.copy_row(row, got.data());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i].bits, w[static_cast<std::size_t>(row) * 37 + i].bits) << row << "," << i;
  }
}

TEST(Linear, RowsComeBackExactly) {
  expect_rows<BFloat16>();
  expect_rows<Float16>();
}

}  // namespace
}  // namespace tandem::kernels
