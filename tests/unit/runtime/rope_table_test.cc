// SPDX-License-Identifier: Apache-2.0
#include "runtime/rope_table.h"

#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>
#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "runtime/rope_config.h"
#include "tests/support/model_files.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;

RopeConfig read(const json::object& config) {
  const JsonFields fields(config, "config.json");
  return read_rope(fields, rope_parameters(fields), 10000.0, config.at("head_dim").as_int64(),
                   config.at("max_position_embeddings").as_int64());
}

TEST(RopeTable, FrequenciesEqualThoseOfTransformers) {
  std::ifstream in(TANDEM_FIXTURES "/rope_reference.json");
  std::stringstream text;
  text << in.rdbuf();
  const json::value cases = json::parse(text.str());
  ASSERT_GE(cases.as_array().size(), 12u);
  for (const json::value& item : cases.as_array()) {
    const RopeConfig config = read(item.at("config").as_object());
    const RopeFrequencies actual = rope_frequencies(config, item.at("length").as_int64());
    const auto expected = json::value_to<std::vector<float>>(item.at("inverse"));
    ASSERT_EQ(actual.inverse.size(), expected.size()) << item;
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(actual.inverse[i], expected[i], 3e-7f * expected[i]) << i << " of " << item;
    EXPECT_FLOAT_EQ(actual.attention_scaling, json::value_to<float>(item.at("attention_scaling")));
  }
}

TEST(RopeTable, RowsArePositionsAndScalingIsMultipliedIn) {
  RopeConfig config;
  config.rotary_dim = 4;
  config.theta = 100.0;
  config.scaling = RopeScaling::kLongRope;
  config.short_factor = config.long_factor = {2.0, 1.0};
  config.attention_factor = 3.0;
  const HostRopeTable table = make_rope_table(config, 5);
  ASSERT_EQ(table.cos.size(), 10u);
  // Frequencies: 1 / (2 * 100^0) and 1 / 100^(1/2).
  for (int position = 0; position < 5; ++position)
    for (int i = 0; i < 2; ++i) {
      const double angle = position * (i == 0 ? 0.5 : 0.1);
      EXPECT_NEAR(table.cos[static_cast<std::size_t>(2 * position + i)], 3 * std::cos(angle), 1e-6);
      EXPECT_NEAR(table.sin[static_cast<std::size_t>(2 * position + i)], 3 * std::sin(angle), 1e-6);
    }
}

TEST(RopeConfig, ReadsTheKeysOfTransformers4) {
  const json::object config = {
      {"head_dim", 64},
      {"max_position_embeddings", 131072},
      {"rope_theta", 500000.0},
      {"rope_scaling", json::object{{"type", "llama3"},
                                    {"factor", 8.0},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0},
                                    {"original_max_position_embeddings", 8192}}}};
  const RopeConfig rope = read(config);
  EXPECT_EQ(rope.theta, 500000.0);
  EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(rope.factor, 8.0);
  EXPECT_EQ(rope.original_max_position, 8192);
  EXPECT_EQ(rope.rotary_dim, 64);
}

TEST(RopeConfig, NamesWhatIsWrong) {
  const auto error = [](json::object parameters) {
    const json::object config = {{"head_dim", 8},
                                 {"max_position_embeddings", 64},
                                 {"rope_parameters", std::move(parameters)}};
    return testing::config_error([&] { read(config); });
  };
  EXPECT_NE(error({{"rope_type", "magic"}}).find("rope type \"magic\" is not supported"),
            std::string::npos);
  EXPECT_NE(error({{"rope_type", "linear"}}).find("\"factor\" must be a number"),
            std::string::npos);
  EXPECT_NE(error({{"rope_type", "longrope"}, {"short_factor", json::array{1.0}}})
                .find("\"short_factor\" must be a list of 4 positive numbers"),
            std::string::npos);
  EXPECT_NE(error({{"partial_rotary_factor", 0.1}}).find("partial_rotary_factor"),
            std::string::npos);
  EXPECT_NE(error({{"rope_theta", -1}}).find("rope_theta"), std::string::npos);
}

}  // namespace
}  // namespace tandem::runtime
