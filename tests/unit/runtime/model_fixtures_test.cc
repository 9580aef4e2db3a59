// SPDX-License-Identifier: Apache-2.0
// Every tiny model of tests/fixtures/models: its config, names, rotary tables and weights, run by
// a plain decoder, give the logits that transformers gives.
#include <gtest/gtest.h>
#include <boost/json/value_to.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/json_file.h"
#include "runtime/model_config.h"
#include "runtime/weights/checkpoint.h"
#include "tests/support/plain_decoder.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const fs::path kModels = fs::path(TANDEM_FIXTURES) / "models";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModels))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class ModelFixtures : public ::testing::TestWithParam<std::string> {};

void expect_case(const ModelConfig& config, const Checkpoint& checkpoint,
                 const json::object& item) {
  auto tokens = json::value_to<std::vector<std::int32_t>>(item.at("prompt"));
  for (std::int32_t token : json::value_to<std::vector<std::int32_t>>(item.at("greedy_tokens")))
    tokens.push_back(token);
  const auto logits = tandem::testing::plain_logits(config, checkpoint, tokens);
  const auto argmax = json::value_to<std::vector<std::int64_t>>(item.at("argmax"));
  const auto gaps = json::value_to<std::vector<double>>(item.at("top2_gaps"));
  ASSERT_EQ(argmax.size(), logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto best = std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin();
    if (gaps[i] > 1e-3) {
      EXPECT_EQ(best, argmax[i]) << "position " << i;
    }
  }
  const json::array& positions = item.at("logit_positions").as_array();
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto expected = json::value_to<std::vector<float>>(item.at("logits").as_array()[i]);
    const std::vector<float>& actual = logits[static_cast<std::size_t>(positions[i].as_int64())];
    ASSERT_EQ(actual.size(), expected.size());
    float largest = 0, error = 0;
    for (std::size_t k = 0; k < actual.size(); ++k) {
      largest = std::max(largest, std::abs(expected[k]));
      error = std::max(error, std::abs(actual[k] - expected[k]));
    }
    EXPECT_LT(error, 2e-5f * largest) << "position " << positions[i];
  }
}

TEST_P(ModelFixtures, PlainDecoderGivesTheLogitsOfTransformers) {
  const fs::path folder = kModels / GetParam();
  const ModelConfig config = read_model_config(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  checkpoint.require_fits(config);
  EXPECT_EQ(config.name, GetParam());
  EXPECT_EQ(config.eos_ids, std::vector<std::int32_t>{2});
  EXPECT_EQ(config.bos_id, 1);
  const json::object reference = read_json_object(folder / "reference.json");
  for (const json::value& item : reference.at("cases").as_array())
    expect_case(config, checkpoint, item.as_object());
}

INSTANTIATE_TEST_SUITE_P(All, ModelFixtures, ::testing::ValuesIn(model_names()),
                         [](const auto& item) {
                           std::string name = item.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GgufFixture, EqualsTheSafetensorsModelBitForBit) {
  const fs::path file = kModels / "llama-bf16.gguf", folder = kModels / "llama-bf16";
  const ModelConfig from_gguf = read_model_config(file), config = read_model_config(folder);
  EXPECT_EQ(from_gguf.num_parameters(), config.num_parameters());
  EXPECT_EQ(from_gguf.dtype, DType::kBF16);
  EXPECT_EQ(from_gguf.head_dim, 64);
  EXPECT_EQ(from_gguf.max_position, config.max_position);
  EXPECT_EQ(from_gguf.norm_eps, config.norm_eps);
  EXPECT_EQ(from_gguf.eos_ids, config.eos_ids);
  EXPECT_EQ(from_gguf.ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(from_gguf.ropes[0].factor, 2.0);
  const Checkpoint a = Checkpoint::open(file), b = Checkpoint::open(folder);
  a.require_fits(from_gguf);
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, entry] : b.tensors()) {
    const TensorEntry& other = a.at(name);
    ASSERT_EQ(other.shape, entry.shape) << name;
    const bool vector = entry.shape.size() == 1;
    const std::int64_t rows = vector ? 1 : entry.shape[0], cols = entry.shape.back();
    std::vector<float> left(static_cast<std::size_t>(rows * cols)), right = left;
    a.read(other, 0, rows, 0, cols, left.data(), cols);
    b.read(entry, 0, rows, 0, cols, right.data(), cols);
    EXPECT_EQ(left, right) << name;
  }
}

}  // namespace
}  // namespace tandem::runtime
