// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_config.h"

#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "tests/support/model_files.h"
#include "tests/support/temporary_folder.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;
using namespace tandem::testing;

json::object llama() {
  return {{"architectures", json::array{"LlamaForCausalLM"}},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"num_hidden_layers", 3},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"torch_dtype", "float16"},
          {"eos_token_id", 7}};
}

class ModelConfigFile : public ::testing::Test {
 protected:
  ModelConfig read(const json::object& config) {
    write_file(folder_.path() / "config.json", json::serialize(config));
    return read_model_config(folder_.path());
  }
  std::string error_of(const json::object& config) {
    return config_error([&] { read(config); });
  }
  /// The error of a Llama whose `key` has another value (null removes it).
  std::string error_with(const char* key, json::value value) {
    json::object config = llama();
    config[key] = std::move(value);
    return error_of(config);
  }
  TemporaryFolder folder_;
};

TEST_F(ModelConfigFile, ReadsALlama) {
  const ModelConfig config = read(llama());
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.num_layers(), 3);
  EXPECT_EQ(config.dtype, DType::kF16);
  EXPECT_EQ(config.activation, Activation::kSilu);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.eos_ids, std::vector<std::int32_t>{7});
  EXPECT_EQ(config.bos_id, std::nullopt);
  EXPECT_EQ(config.default_temperature, std::nullopt);
  EXPECT_EQ(config.ropes.at(0).theta, 10000.0);
  EXPECT_EQ(config.layers.at(2).rope, 0);
  EXPECT_EQ(config.layers.at(2).sliding_window, 0);
}

TEST_F(ModelConfigFile, GenerationConfigWins) {
  write_file(folder_.path() / "generation_config.json",
             R"({"eos_token_id":[3,5],"bos_token_id":1,"temperature":0.6,"top_p":0.9,"top_k":20})");
  const ModelConfig config = read(llama());
  EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{3, 5}));
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.default_temperature, 0.6f);
  EXPECT_EQ(config.default_top_p, 0.9f);
  EXPECT_EQ(config.default_top_k, 20);
  write_file(folder_.path() / "generation_config.json", R"({"eos_token_id":320})");
  EXPECT_NE(error_of(llama()).find("generation_config.json: \"eos_token_id\" must be token ids"),
            std::string::npos);
}

TEST_F(ModelConfigFile, WithoutATypeTheCheckpointSays) {
  json::object config = llama();
  config.erase("torch_dtype");
  EXPECT_EQ(read(config).dtype, DType::kBF16);
  write_file(folder_.path() / "model.safetensors",
             safetensors(R"({"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})", "xxxx"));
  EXPECT_EQ(read(config).dtype, DType::kF32);
}

TEST_F(ModelConfigFile, RefusesWhatItDoesNotKnowByName) {
  const std::string family = error_with("architectures", json::array{"MambaForCausalLM"});
  EXPECT_NE(family.find("architecture MambaForCausalLM is not supported; Tandem knows Llama"),
            std::string::npos)
      << family;
  for (const std::string& known : known_architectures())
    EXPECT_NE(family.find(known), std::string::npos) << known;
  const std::string quantized =
      error_with("quantization_config", json::object{{"quant_method", "awq"}});
  EXPECT_NE(quantized.find("quantized with \"awq\""), std::string::npos) << quantized;
  EXPECT_NE(error_with("hidden_act", "relu").find("\"hidden_act\" must be one of"),
            std::string::npos);
  EXPECT_NE(error_with("torch_dtype", "float8_e4m3fn").find("\"torch_dtype\" must be"),
            std::string::npos);
}

TEST_F(ModelConfigFile, NamesEachWrongKey) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
                          "num_hidden_layers", "max_position_embeddings"}) {
    EXPECT_NE(error_with(key, nullptr).find(concat("\"", key, "\" must be a whole number")),
              std::string::npos);
    for (const json::value& value :
         {json::value(0), json::value(-1), json::value(1.5), json::value("4"), json::value(1e300),
          json::value(std::uint64_t{1} << 63)})
      EXPECT_NE(error_with(key, value).find(key), std::string::npos) << key << " " << value;
  }
  EXPECT_NE(error_with("num_key_value_heads", 3).find("a divisor of num_attention_heads 4"),
            std::string::npos);
  EXPECT_NE(error_with("hidden_size", 66).find("a multiple of num_attention_heads"),
            std::string::npos);
  EXPECT_NE(error_with("tie_word_embeddings", 1).find("must be true or false"), std::string::npos);
  EXPECT_NE(error_with("eos_token_id", 320).find("token ids below vocab_size 320"),
            std::string::npos);
  EXPECT_NE(error_with("architectures", json::array{}).find("a list with one of"),
            std::string::npos);
}

TEST_F(ModelConfigFile, NamesWhatIsMissing) {
  EXPECT_NE(config_error([&] {
              read_model_config(folder_.path() / "nowhere");
            }).find("there is no model folder"),
            std::string::npos);
  EXPECT_NE(config_error([&] { read_model_config(folder_.path()); }).find("there is no file"),
            std::string::npos);
  write_file(folder_.path() / "config.json", "{\"a\":");
  EXPECT_NE(config_error([&] { read_model_config(folder_.path()); }).find("not valid JSON"),
            std::string::npos);
  EXPECT_NE(config_error([&] { read_model_config(folder_.path() / "x.gguf"); }).find("cannot open"),
            std::string::npos);
}

TEST_F(ModelConfigFile, MapsWindowsAndLayersOfTheFamilies) {
  json::object config = llama();
  config["architectures"] = json::array{"Gemma3ForCausalLM"};
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["sliding_window_pattern"] = 2;
  config["sliding_window"] = 33;
  config["rope_theta"] = 5e5;
  const ModelConfig gemma = read(config);
  EXPECT_EQ(gemma.layers[0].sliding_window, 33);
  EXPECT_EQ(gemma.layers[0].rope, 1);
  EXPECT_EQ(gemma.layers[1].sliding_window, 0);
  EXPECT_EQ(gemma.layers[1].rope, 0);
  EXPECT_EQ(gemma.ropes[0].theta, 5e5);
  EXPECT_EQ(gemma.ropes[1].theta, 1e4);
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_EQ(gemma.embedding_scale, 8.0f);
  config["layer_types"] = json::array{"sliding_attention", "full_attention"};
  EXPECT_NE(error_of(config).find("a list of 3 layer types"), std::string::npos);
  config["layer_types"] = json::array{"sliding_attention", "full_attention", "odd"};
  EXPECT_NE(error_of(config).find("made of"), std::string::npos);
}

}  // namespace
}  // namespace tandem::runtime
