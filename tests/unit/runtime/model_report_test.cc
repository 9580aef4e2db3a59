// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_report.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/device/error.h"
#include "support/model_shapes.h"

namespace tandem::runtime {
namespace {

using testing::smollm2;

// Per layer: q and o 576*576, k and v 192*576, three MLP matrices 576*1536, two norms of 576.
constexpr std::int64_t kLayerMatrix = 2 * 576 * 576 + 2 * 192 * 576 + 3 * 576 * 1536;

TEST(ModelReport, OneRankHoldsEveryParameterOnce) {
  const ModelReport report = report_model(smollm2(), 1, DType::kBF16);
  EXPECT_EQ(report.num_parameters, 134515008);  // as the model's own page says
  ASSERT_EQ(report.ranks.size(), 1u);
  EXPECT_EQ(report.ranks[0].weight_bytes,
            30 * (2 * kLayerMatrix + 4 * 2 * 576) + 2 * 49152 * 576 + 4 * 576);
  EXPECT_EQ(report.ranks[0].kv_bytes_per_token, 2 * 30 * 3 * 64 * 2);
  EXPECT_DOUBLE_EQ(report.imbalance, 1.0);
  EXPECT_EQ(report.duplicated_bytes, 0);
  EXPECT_EQ(report.duplicated_kv_bytes_per_token, 0);
}

TEST(ModelReport, ThreeRanksDuplicateOnlyNorms) {
  const ModelReport report = report_model(smollm2(), 3, DType::kBF16);
  EXPECT_DOUBLE_EQ(report.imbalance, 1.0);
  EXPECT_EQ(report.duplicated_bytes, 2 * 4 * (30 * 2 * 576 + 576));
  EXPECT_EQ(report.duplicated_kv_bytes_per_token, 0);
}

TEST(ModelReport, SixRanksDuplicateKeyValueHeads) {
  // Nine query heads in six contiguous ranges touch 1 KV head each: six in all, three too many.
  const ModelReport report = report_model(smollm2(), 6, DType::kBF16);
  std::int64_t kv_heads = 0;
  for (const RankReport& rank : report.ranks) kv_heads += rank.kv_heads.size();
  EXPECT_EQ(report.duplicated_kv_bytes_per_token, (kv_heads - 3) * 2 * 30 * 64 * 2);
  EXPECT_EQ(report.duplicated_bytes,
            5 * 4 * (30 * 2 * 576 + 576) + (kv_heads - 3) * 30 * 2 * 64 * 576 * 2);
  EXPECT_GT(report.imbalance, 1.0);
}

TEST(ModelReport, RefusesMoreRanksThanHeads) {
  EXPECT_THROW(report_model(smollm2(), 10, DType::kBF16), ConfigError);
}

TEST(ModelReport, TextAndJsonSayTheSame) {
  const ModelReport report = report_model(smollm2(), 2, DType::kBF16);
  const std::string text = to_text(report);
  EXPECT_NE(text.find("134.52 million parameters"), std::string::npos) << text;
  EXPECT_NE(text.find("(tied)"), std::string::npos) << text;
  const boost::json::object json = to_json(report);
  EXPECT_EQ(json.at("parameters").as_int64(), 134515008);
  EXPECT_EQ(json.at("ranks").as_array().size(), 2u);
  EXPECT_EQ(json.at("ranks").as_array()[1].at("weight_bytes").as_int64(),
            report.ranks[1].weight_bytes);
}

TEST(ModelReport, CountsWhatTheFixturesHold) {
  const ModelConfig phi3 =
      read_model_config(std::filesystem::path(TANDEM_FIXTURES) / "models" / "phi3");
  // Embedding and head 320*64; per layer qkv 128*64, o 64*64, MLP 3*144*64, two norms; final norm.
  EXPECT_EQ(phi3.num_parameters(),
            2 * 320 * 64 + 2 * (128 * 64 + 64 * 64 + 3 * 144 * 64 + 128) + 64);
}

}  // namespace
}  // namespace tandem::runtime
