// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/weights/gguf_config.h"
#include "runtime/weights/tensor_names.h"
#include "tests/support/model_files.h"
#include "tests/support/temporary_folder.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;
using namespace tandem::testing;

/// "m" [4, 6] and "v" [6], value = 10 row + column (v: row 9), exact in every type.
template <typename T>
std::string grid(const std::string& dtype) {
  std::vector<T> values;
  for (int row : {0, 1, 2, 3, 9})
    for (int col = 0; col < 6; ++col) values.push_back(T(static_cast<float>(10 * row + col)));
  const std::size_t size = sizeof(T);
  return safetensors(concat(R"({"m":{"dtype":")", dtype, R"(","shape":[4,6],"data_offsets":[0,)",
                            24 * size, R"(]},"v":{"dtype":")", dtype,
                            R"(","shape":[6],"data_offsets":[)", 24 * size, ",", 30 * size, "]}}"),
                     bytes_of(values));
}

template <typename T>
void expect_slices(const Checkpoint& checkpoint, std::int64_t element_bytes) {
  std::vector<T> out(15, T(-1.0f));
  checkpoint.read(checkpoint.at("m"), 1, 3, 2, 2, out.data(), 5);
  for (int row = 0; row < 3; ++row)
    for (int col = 0; col < 5; ++col)
      EXPECT_EQ(static_cast<float>(out[static_cast<std::size_t>(5 * row + col)]),
                col < 2 ? static_cast<float>(10 * (row + 1) + col + 2) : -1.0f);
  EXPECT_EQ(checkpoint.bytes_read(), 6 * element_bytes);
  checkpoint.read(checkpoint.at("v"), 0, 1, 4, 2, out.data(), 2);
  EXPECT_EQ(static_cast<float>(out[0]), 94.0f);
  EXPECT_EQ(static_cast<float>(out[1]), 95.0f);
  EXPECT_EQ(checkpoint.bytes_read(), 8 * element_bytes);
}

template <typename Stored>
void expect_all_types(const std::string& dtype) {
  const TemporaryFolder folder;
  write_file(folder.path() / "model.safetensors", grid<Stored>(dtype));
  expect_slices<float>(Checkpoint::open(folder.path()), sizeof(Stored));
  expect_slices<BFloat16>(Checkpoint::open(folder.path()), sizeof(Stored));
  expect_slices<Float16>(Checkpoint::open(folder.path()), sizeof(Stored));
}

TEST(Checkpoint, ReadsAndCountsOnlyTheSlice) {
  expect_all_types<float>("F32");
  expect_all_types<BFloat16>("BF16");
  expect_all_types<Float16>("F16");
}

TEST(Checkpoint, ASliceOutsideIsAFaultOfOurs) {
  const TemporaryFolder folder;
  write_file(folder.path() / "model.safetensors", grid<float>("F32"));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  std::vector<float> out(64);
  const TensorEntry& m = checkpoint.at("m");
  EXPECT_THROW(checkpoint.read(m, 3, 2, 0, 6, out.data(), 6), InternalError);
  EXPECT_THROW(checkpoint.read(m, 0, 1, 5, 2, out.data(), 6), InternalError);
  EXPECT_THROW(checkpoint.read(m, -1, 1, 0, 1, out.data(), 6), InternalError);
  EXPECT_EQ(
      config_error([&] { checkpoint.at("x"); }).find(folder.path().string() + " lacks tensor x"),
      0u);
}

/// Rows of Q8_0 blocks: block b has scale b + 1, value i of a block is (i - 16).
TEST(Checkpoint, QuantisedSlicesReadTheCoveringBlocks) {
  std::string data;
  for (int block = 0; block < 4; ++block) {  // [2, 64]
    data += bytes_of(Float16(static_cast<float>(block + 1)));
    for (int i = 0; i < 32; ++i) data += static_cast<char>(i - 16);
  }
  GgufBuilder builder;
  builder.tensor("t", {64, 2}, 8, data);
  const TemporaryFolder folder;
  write_file(folder.path() / "t.gguf", builder.bytes());
  const GgufFile file(folder.path() / "t.gguf");
  const TensorEntry& entry = *file.find_tensor("t");
  const Checkpoint reader = Checkpoint::dummy({}, 0);
  std::vector<float> out(20);
  reader.read(entry, 1, 1, 30, 20, out.data(), 20);
  for (int i = 0; i < 20; ++i) {
    const int col = 30 + i, block = 2 + col / 32;
    EXPECT_EQ(out[static_cast<std::size_t>(i)],
              static_cast<float>(block + 1) * static_cast<float>(col % 32 - 16));
  }
  EXPECT_EQ(reader.bytes_read(), 2 * 34);
}

TEST(Checkpoint, PermutedRowsComeBackInOrder) {
  // 2 heads of 6 rows: stored row 2 i + j of a head is row 3 j + i.
  std::vector<float> stored(12);
  for (int head = 0; head < 2; ++head)
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 2; ++j)
        stored[static_cast<std::size_t>(6 * head + 2 * i + j)] =
            static_cast<float>(6 * head + 3 * j + i);
  TensorEntry entry;
  entry.shape = {12, 1};
  entry.data = reinterpret_cast<const std::byte*>(stored.data());
  entry.size_bytes = 48;
  entry.permuted_heads = 2;
  const Checkpoint reader = Checkpoint::dummy({}, 0);
  std::vector<float> out(10);
  reader.read(entry, 2, 10, 0, 1, out.data(), 1);
  for (int row = 0; row < 10; ++row)
    EXPECT_EQ(out[static_cast<std::size_t>(row)], static_cast<float>(row + 2));
  entry.shape = {12};  // a bias
  reader.read(entry, 0, 1, 2, 10, out.data(), 10);
  for (int row = 0; row < 10; ++row)
    EXPECT_EQ(out[static_cast<std::size_t>(row)], static_cast<float>(row + 2));
}

ModelConfig phi3() { return read_model_config(fs::path(TANDEM_FIXTURES) / "models" / "phi3"); }

TEST(DummyWeights, ASliceEqualsThatPartOfTheWhole) {
  const ModelConfig config = phi3();
  const Checkpoint a = Checkpoint::dummy(config, 7), b = Checkpoint::dummy(config, 7);
  a.require_fits(config);
  const TensorEntry& tensor = a.at("model.layers.1.self_attn.qkv_proj.weight");
  const std::int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  std::vector<float> whole(static_cast<std::size_t>(rows * cols)), part(3 * 5);
  a.read(tensor, 0, rows, 0, cols, whole.data(), cols);
  b.read(b.at("model.layers.1.self_attn.qkv_proj.weight"), 40, 3, 7, 5, part.data(), 5);
  for (int row = 0; row < 3; ++row)
    for (int col = 0; col < 5; ++col)
      EXPECT_EQ(part[static_cast<std::size_t>(5 * row + col)],
                whole[static_cast<std::size_t>((40 + row) * cols + 7 + col)]);
  double mean = 0, square = 0;
  for (float value : whole) {
    mean += value;
    square += double{value} * double{value};
  }
  const auto count = static_cast<double>(whole.size());
  EXPECT_NEAR(mean / count, 0.0, 0.01);
  EXPECT_NEAR(square / count * static_cast<double>(cols), 1.0, 0.05);  // variance 1 / columns
  EXPECT_EQ(a.bytes_read(), 0);
}

TEST(DummyWeights, NamesAndSeedsGiveOtherValues) {
  const ModelConfig config = phi3();
  const Checkpoint a = Checkpoint::dummy(config, 7), b = Checkpoint::dummy(config, 8);
  const auto first = [&](const Checkpoint& from, const char* name) {
    float value = 0;
    from.read(from.at(name), 0, 1, 0, 1, &value, 1);
    return value;
  };
  const char* q = "model.layers.0.self_attn.qkv_proj.weight";
  EXPECT_EQ(first(a, q), first(a, q));
  EXPECT_NE(first(a, q), first(b, q));
  EXPECT_NE(first(a, q), first(a, "model.layers.1.self_attn.qkv_proj.weight"));
  EXPECT_NEAR(first(a, "model.norm.weight"), 1.0f, 0.1f);
}

/// A fixture's tensors are checked against a config that was changed.
std::string fit_error(const std::string& model, const std::function<void(ModelConfig&)>& change) {
  const fs::path folder = fs::path(TANDEM_FIXTURES) / "models" / model;
  ModelConfig config = read_model_config(folder);
  change(config);
  return config_error([&] { Checkpoint::open(folder).require_fits(config); });
}

TEST(RequireFits, NamesTheTensorThatContradictsTheConfig) {
  EXPECT_EQ(fit_error("llama-9q3kv", [](ModelConfig&) {}), "");
  const auto expect = [](const std::string& error, const std::string& text) {
    EXPECT_NE(error.find(text), std::string::npos) << "expected '" << text << "', got " << error;
  };
  expect(
      fit_error("llama-9q3kv", [](ModelConfig& c) { c.hidden_size = 144; }),
      "tensor model.embed_tokens.weight has shape [384, 72] but config.json asks for [384, 144]");
  expect(fit_error("llama-9q3kv", [](ModelConfig& c) { c.layers.resize(3); }),
         "lacks tensor model.layers.2.self_attn.q_proj.weight");
  expect(fit_error("llama-9q3kv", [](ModelConfig& c) { c.layers.resize(1); }),
         "holds tensor model.layers.1.");
  expect(fit_error("llama-9q3kv", [](ModelConfig& c) { c.tied_embeddings = false; }),
         "lacks tensor lm_head.weight");
  expect(fit_error("llama-9q3kv", [](ModelConfig& c) { c.dtype = DType::kBF16; }),
         "is F32 but config.json says bfloat16");
  expect(fit_error("llama-14q2kv", [](ModelConfig& c) { c.mlp_bias = false; }),
         "holds tensor model.layers.0.mlp.down_proj.bias");
  expect(fit_error("llama-14q2kv", [](ModelConfig& c) { c.num_kv_heads = 7; }),
         "tensor model.layers.0.self_attn.k_proj.weight has shape");
}

TEST(TensorNames, FusedTensorsAreSliced) {
  const TensorNames names(phi3());  // 4 query and 2 KV heads of 16, MLP 144
  const TensorSlice v = names.layer(1, LayerTensor::kV), up = names.layer(0, LayerTensor::kUp);
  EXPECT_EQ(v.name, "model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(v.row_begin, 96);
  EXPECT_EQ(v.rows, 32);
  EXPECT_EQ(v.cols, 64);
  EXPECT_EQ(up.name, "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(up.row_begin, 144);
  EXPECT_EQ(up.rows, 144);
  EXPECT_FALSE(names.layer(0, LayerTensor::kQBias));
  EXPECT_FALSE(names.layer(0, LayerTensor::kMlpPostNorm));
}

}  // namespace
}  // namespace tandem::runtime
