// SPDX-License-Identifier: Apache-2.0
// Weights of few bits: what is packed comes back bit for bit, products lie within the stated bound
// of sums in double, and have the same bits whatever the CPU, the threads and the other rows.
#include "kernels/cpu/quantized_weight.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/device/cpu/context.h"
#include "kernels/linear.h"

namespace tandem::kernels {
namespace {

using cpu::Loops;
using cpu::QuantizedShape;

const std::vector<QuantFormat> kFormats = {
    {4, 8, false}, {4, 0, true}, {8, 0, false}, {8, 0, true}};

struct Weight {
  QuantizedShape shape;
  std::vector<QuantBlock> blocks;
  std::vector<std::byte> packed;

  Weight(const QuantFormat& format, std::int64_t rows, std::int64_t cols, unsigned seed = 1)
      : shape{format, rows, cols} {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> scale(-0.1f, 0.1f);
    const int least = format.bits == 8 ? -128 : -format.zero;
    std::uniform_int_distribution<int> code(least, least + (1 << format.bits) - 1);
    blocks.resize(static_cast<std::size_t>(rows * shape.groups()));
    for (QuantBlock& block : blocks) {
      block.scale = Float16(scale(random));
      if (format.has_least) block.least = Float16(scale(random));
      for (std::int8_t& value : block.codes) value = static_cast<std::int8_t>(code(random));
    }
    packed.resize(static_cast<std::size_t>(shape.size_bytes()), std::byte{0xee});
    cpu::pack(shape, blocks.data(), packed.data());
  }
  float at(std::int64_t row, std::int64_t col) const {
    const QuantBlock& block = blocks[static_cast<std::size_t>(row * shape.groups() + col / 32)];
    return float{block.scale} * static_cast<float>(block.codes[col % 32]) + float{block.least};
  }
};

std::vector<BFloat16> normal(std::int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value;
  std::vector<BFloat16> values;
  for (std::int64_t i = 0; i < size; ++i) values.emplace_back(value(random));
  return values;
}

std::vector<float> product(const Weight& w, const std::vector<BFloat16>& x, Loops loops) {
  const auto rows = static_cast<std::int64_t>(x.size()) / w.shape.cols;
  std::vector<float> y(static_cast<std::size_t>(rows * w.shape.rows), NAN);
  cpu::quantized_matmul(w.shape, w.packed.data(),
                        TensorView<const BFloat16, Cpu>(x.data(), rows, w.shape.cols),
                        TensorView<float, Cpu>(y.data(), rows, w.shape.rows), loops);
  return y;
}

TEST(QuantizedWeight, GivesItsValuesBackBitForBit) {
  for (const QuantFormat& format : kFormats)
    for (const std::int64_t rows : {1, 64, 130}) {
      const Weight w(format, rows, 96);
      std::vector<BFloat16> row(96), block(64 * 96);
      for (std::int64_t r = 0; r < rows; ++r) {
        cpu::unpack_row(w.shape, w.packed.data(), r, row.data());
        for (std::int64_t c = 0; c < 96; ++c)
          ASSERT_EQ(row[static_cast<std::size_t>(c)].bits, BFloat16(w.at(r, c)).bits)
              << format.bits << " bits, row " << r << " column " << c;
      }
      const cpu::PackedShape packed{rows, 96};
      for (const Loops loops : {Loops::kFastest, Loops::kPlain})
        for (std::int64_t b = 0; b < w.shape.blocks(); ++b) {
          cpu::unpack_block(w.shape, w.packed.data() + b * w.shape.block_bytes(), block.data(),
                            loops);
          for (std::int64_t r = b * 64; r < std::min(rows, b * 64 + 64); ++r)
            for (std::int64_t c = 0; c < 96; ++c)
              ASSERT_EQ(
                  block[static_cast<std::size_t>(packed.at(r, c) - packed.at(b * 64, 0))].bits,
                  BFloat16(w.at(r, c)).bits);
        }
    }
}

TEST(QuantizedMatmul, LiesWithinTheStatedBoundOfSumsInDouble) {
  for (const QuantFormat& format : kFormats)
    for (const std::int64_t rows : {1, 65, 192}) {
      const Weight w(format, rows, 160);
      const auto x = normal(7 * 160, 2);
      const auto y = product(w, x, Loops::kFastest);
      for (std::int64_t i = 0; i < 7; ++i)
        for (std::int64_t n = 0; n < rows; ++n) {
          double sum = 0, bound = 0;
          for (std::int64_t g = 0; g < 160; g += 32) {
            double most = 0, weights = 0, least = 0;
            for (std::int64_t c = g; c < g + 32; ++c) {
              const double value = float{x[static_cast<std::size_t>(i * 160 + c)]};
              sum += value * w.at(n, c);
              most = std::max(most, std::fabs(value));
              weights += std::fabs(w.at(n, c));
              const QuantBlock& block = w.blocks[static_cast<std::size_t>(n * 5 + c / 32)];
              least += std::fabs(float{block.least}) + std::fabs(float{block.scale} * 128);
            }
            // 16 bits of x, then a few roundings of floats as large as both terms together.
            bound += most * (weights * 0x1p-16 + least * 0x1p-21);
          }
          ASSERT_NEAR(y[static_cast<std::size_t>(i * rows + n)], sum, bound);
        }
    }
}

TEST(QuantizedMatmul, GivesTheSameBitsByAllLoopsForAllNumbersOfRowsAndThreads) {
  const int before = omp_get_max_threads();
  for (const QuantFormat& format : kFormats) {
    const Weight w(format, 200, 576);
    const auto x = normal(9 * 576, 3);
    const auto all = product(w, x, Loops::kFastest);
    EXPECT_EQ(all, product(w, x, Loops::kPlain));
    for (std::int64_t i = 0; i < 9; ++i)
      for (const int threads : {1, 3}) {
        omp_set_num_threads(threads);
        const std::vector<BFloat16> row(x.begin() + i * 576, x.begin() + (i + 1) * 576);
        EXPECT_EQ(product(w, row, Loops::kFastest),
                  std::vector<float>(all.begin() + i * 200, all.begin() + (i + 1) * 200));
      }
    omp_set_num_threads(before);
  }
}

TEST(QuantizedMatmul, KeepsZerosAndTellsOfInfinity) {
  const Weight w({4, 0, true}, 64, 64);
  for (const float odd : {0.0f, 1e-36f}) {
    const std::vector<BFloat16> x(64, BFloat16(odd));
    for (const Loops loops : {Loops::kFastest, Loops::kPlain})
      for (const float value : product(w, x, loops)) EXPECT_EQ(value, 0.0f);
  }
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    auto x = normal(64, 4);
    x[40] = BFloat16(odd);
    for (const Loops loops : {Loops::kFastest, Loops::kPlain})
      for (const float value : product(w, x, loops)) EXPECT_TRUE(std::isnan(value)) << odd;
  }
}

/// Few rows multiply the few bits, many the values made of them: weights of one tile, of several,
/// and y that is wider than the weight.
TEST(QuantizedLinear, MultipliesAnyNumberOfRows) {
  Context<Cpu> ctx(2);
  for (const auto& [rows, cols] : {std::pair{200, 96}, {64, 64}, {1100, 4096}}) {
    const Weight w({4, 0, true}, rows, cols);
    Buffer<QuantBlock, Cpu> blocks(static_cast<std::int64_t>(w.blocks.size()));
    std::copy(w.blocks.begin(), w.blocks.end(), blocks.data());
    const LinearWeight<BFloat16, Cpu> linear(ctx, w.shape.format, std::move(blocks), rows, cols);
    EXPECT_EQ(linear.size_bytes(), w.shape.size_bytes());
    for (const std::int64_t m : {3, 17, 40}) {
      const auto x = normal(m * cols, 5);
      std::vector<float> y(static_cast<std::size_t>(m * (rows + 3)), 77.0f);
      matmul<BFloat16, float>(ctx, TensorView<const BFloat16, Cpu>(x.data(), m, cols), linear,
                              TensorView<float, Cpu>(y.data(), m, rows + 3));
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t n = 0; n < rows + 3; n += n < rows ? 37 : 1) {
          const float got = y[static_cast<std::size_t>(i * (rows + 3) + n)];
          if (n >= rows) {
            ASSERT_EQ(got, 77.0f);
            continue;
          }
          double sum = 0, size = 0;
          for (std::int64_t c = 0; c < cols; ++c) {
            const double term = double{x[static_cast<std::size_t>(i * cols + c)]} * w.at(n, c);
            sum += term;
            size += term * term;
          }
          // Values made for many rows are rounded to bfloat16.
          ASSERT_NEAR(got, sum, 0x1p-6 * std::sqrt(size)) << m << " rows, " << i << "," << n;
        }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
