// SPDX-License-Identifier: Apache-2.0
// Blocks that stay in few bits hold exactly the values of the file, slice by slice, and matrices
// stay so only where all of their parts can.
#include "runtime/weights/weight_formats.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "runtime/model_config.h"
#include "runtime/model_report.h"
#include "runtime/weights/dequantize.h"

namespace tandem::runtime {
namespace {

using kernels::QuantBlock;
using kernels::QuantFormat;

const std::filesystem::path kFile =
    std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-quants.gguf";

float value_of(const QuantBlock& block, int i) {
  return float{block.scale} * static_cast<float>(block.codes[i]) + float{block.least};
}

TEST(WeightFormats, BlocksKeepTheirValuesBitForBit) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> byte(0, 255);
  int kept = 0;
  for (int t = 0; t < static_cast<int>(StorageType::kDummy); ++t) {
    const auto type = static_cast<StorageType>(t);
    const auto format = quant_format(type);
    if (!format) continue;
    ++kept;
    std::vector<std::byte> blocks(static_cast<std::size_t>(50 * block_bytes(type)));
    for (std::byte& one : blocks) one = static_cast<std::byte>(byte(random));
    for (int b = 0; b < 50; ++b)  // no infinite or missing scales
      for (const int at : {1, 3})
        blocks[static_cast<std::size_t>(b * block_bytes(type) + at)] &= std::byte{0xbb};
    std::vector<QuantBlock> out(50);
    read_blocks(type, blocks.data(), 50, out.data());
    std::vector<float> wanted(50 * 32);
    dequantize(type, blocks.data(), 50, wanted.data());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(value_of(out[i / 32], static_cast<int>(i % 32)), wanted[i]) << name(type);
      const int code = out[i / 32].codes[i % 32] + format->zero;
      ASSERT_TRUE(format->bits == 8 || (code >= 0 && code < 16)) << name(type);
      ASSERT_TRUE(format->has_least || out[i / 32].least.bits == 0) << name(type);
    }
  }
  EXPECT_EQ(kept, 6);
}

TEST(WeightFormats, SlicesOfATensorAreThoseOfItsValues) {
  const Checkpoint checkpoint = Checkpoint::open(kFile);
  for (const char* part : {"q_proj", "k_proj", "o_proj"}) {  // two of them have permuted rows
    const TensorEntry& entry = checkpoint.at(concat("model.layers.0.self_attn.", part, ".weight"));
    ASSERT_TRUE(quant_format(entry.type)) << part;
    const std::int64_t rows = entry.shape[0], cols = entry.shape[1], row = rows / 4,
                       col = cols - 32;
    std::vector<QuantBlock> blocks(static_cast<std::size_t>(3 * 40));
    std::vector<float> values(40 * 32);
    checkpoint.read(entry, row, 40, col, 32, blocks.data(), 3);
    checkpoint.read(entry, row, 40, col, 32, values.data(), 32);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(value_of(blocks[i / 32 * 3], static_cast<int>(i % 32)), values[i]) << part;
  }
}

TEST(WeightFormats, AMatrixStaysInFewBitsWhereAllItsPartsCan) {
  const Checkpoint checkpoint = Checkpoint::open(kFile);
  const ModelConfig config = read_model_config(kFile);
  const TensorNames names(config);
  const auto format = [&](std::int64_t layer, std::vector<LayerTensor> tensors,
                          parallel::Range cols) {
    std::vector<TensorSlice> parts;
    for (const LayerTensor tensor : tensors) parts.push_back(names.layer(layer, tensor));
    return quant_format(checkpoint, parts, cols);
  };
  using enum LayerTensor;
  EXPECT_EQ(format(1, {kQ, kK, kV}, {0, 64}), (QuantFormat{4, 0, true}));
  EXPECT_EQ(format(0, {kQ, kK, kV}, {0, 64}), (QuantFormat{8, 0, true}));  // Q4_1, Q8_0, Q5_1
  EXPECT_EQ(format(0, {kO}, {64, 192}), (QuantFormat{4, 8, false}));
  EXPECT_EQ(format(0, {kO}, {16, 80}), std::nullopt);    // cuts blocks
  EXPECT_EQ(format(1, {kDown}, {0, 64}), std::nullopt);  // BF16
  EXPECT_EQ(main_format(checkpoint), "q8_0");
}

TEST(WeightFormats, TheReportCountsWhatCpuRanksHold) {
  const Checkpoint checkpoint = Checkpoint::open(kFile);
  const ModelConfig config = read_model_config(kFile);
  const ModelReport report = report_model(config, 1, DType::kBF16, &checkpoint);
  const std::int64_t qkv = 512 * 64, o = 256 * 64, mlp = 64 * 192, table = 320 * 64;
  const std::int64_t norms = 4 * 5 * 64;
  EXPECT_EQ(report.ranks[0].weight_bytes, 2 * (2 * (qkv + o + 3 * mlp) + 2 * table) + norms);
  const std::int64_t first = qkv / 32 * 36 + o / 32 * 18 + 2 * mlp / 32 * 34 + mlp / 32 * 20;
  const std::int64_t second = qkv / 32 * 20 + o / 32 * 34 + 2 * mlp / 32 * 18 + mlp * 2;
  EXPECT_EQ(report.ranks[0].cpu_weight_bytes, first + second + table / 32 * 34 + table * 2 + norms);
  EXPECT_EQ(report_model(config, 1, DType::kF32, &checkpoint).ranks[0].cpu_weight_bytes,
            report_model(config, 1, DType::kF32).ranks[0].weight_bytes);
}

}  // namespace
}  // namespace tandem::runtime
