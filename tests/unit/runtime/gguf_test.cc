// SPDX-License-Identifier: Apache-2.0
// Every fault that a GGUF file can have is one sentence that names it.
#include <gtest/gtest.h>

#include "runtime/weights/gguf_config.h"
#include "runtime/weights/gguf_reader.h"
#include "tests/support/model_files.h"

namespace tandem::runtime {
namespace {

using namespace tandem::testing;

constexpr std::uint32_t kF32 = 0, kQ8_0 = 8;

GgufFile parse(const std::string& bytes) {
  return GgufFile(std::make_shared<const MappedFile>(
      "x.gguf", std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

std::string floats(std::size_t count) { return std::string(4 * count, '\0'); }

/// A whole tiny Llama: 2 query heads, 1 KV head of 2 dims, width 4, one layer.
GgufBuilder tiny() {
  GgufBuilder out;
  out.string("general.architecture", "llama").u32("llama.block_count", 1);
  out.u32("llama.embedding_length", 4).u32("llama.feed_forward_length", 6);
  out.u32("llama.attention.head_count", 2).u32("llama.attention.head_count_kv", 1);
  out.u32("llama.context_length", 16).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  out.tensor("token_embd.weight", {4, 5}, kF32, floats(20));
  out.tensor("output_norm.weight", {4}, kF32, floats(4));
  for (const char* name : {"attn_norm", "ffn_norm"})
    out.tensor(concat("blk.0.", name, ".weight"), {4}, kF32, floats(4));
  for (const char* name : {"attn_q", "attn_output"})
    out.tensor(concat("blk.0.", name, ".weight"), {4, 4}, kF32, floats(16));
  for (const char* name : {"attn_k", "attn_v"})
    out.tensor(concat("blk.0.", name, ".weight"), {4, 2}, kF32, floats(8));
  for (const char* name : {"ffn_gate", "ffn_up"})
    out.tensor(concat("blk.0.", name, ".weight"), {4, 6}, kF32, floats(24));
  out.tensor("blk.0.ffn_down.weight", {6, 4}, kF32, floats(24));
  return out;
}

TEST(Gguf, ReadsConfigAndTensorsOfATinyModel) {
  const std::string bytes = tiny().bytes();
  const GgufFile file = parse(bytes);
  const ModelConfig config = gguf_config(file);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.head_dim, 2);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_TRUE(config.tied_embeddings);
  const TensorMap tensors = gguf_tensors(file);
  EXPECT_EQ(tensors.size(), 11u);
  EXPECT_EQ(tensors.at("model.layers.0.mlp.down_proj.weight").shape,
            (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.q_proj.weight").permuted_heads, 2);
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.k_proj.weight").permuted_heads, 1);
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.v_proj.weight").permuted_heads, 0);
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string bytes = tiny().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(config_error([&] { parse(bytes.substr(0, size)); }), "") << size;
}

TEST(Gguf, NoChangedByteDoesHarm) {
  const std::string good = tiny().bytes();
  for (std::size_t at = 0; at < good.size(); ++at)
    for (const char change : {'\x01', '\x7f', '\xff'}) {
      std::string bytes = good;
      bytes[at] ^= change;
      config_error([&] {
        const GgufFile file = parse(bytes);
        gguf_config(file);
        gguf_tensors(file);
      });
    }
}

struct Fault {
  GgufBuilder file;
  std::string expected;
};

GgufBuilder with(const std::function<void(GgufBuilder&)>& change) {
  GgufBuilder out;
  change(out);
  return out;
}

void expect_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    const std::string error = config_error([&] { parse(fault.file.bytes()); });
    EXPECT_NE(error.find(fault.expected), std::string::npos)
        << "expected '" << fault.expected << "', got '" << error << "'";
    EXPECT_NE(error.find("x.gguf"), std::string::npos) << error;
  }
}

TEST(Gguf, NamesEachFaultOfTheHeader) {
  const std::uint64_t huge = std::uint64_t{1} << 60;
  expect_faults({
      {with([](auto& f) { f.magic = "GGML"; }), "does not start with the letters GGUF"},
      {with([](auto& f) { f.version = 2; }), "has GGUF version 2"},
      {with([](auto& f) { f.version = 4; }), "has GGUF version 4"},
      {with([](auto& f) { f.version = 3u << 24; }), "big-endian"},
      {with([&](auto& f) { f.extra_tensors = huge; }), "the tensor count"},
      {with([&](auto& f) { f.extra_pairs = huge; }), "the metadata count"},
      {with([&](auto& f) { f.extra_tensors = -1; }), "the tensor count"},
      {with([](auto& f) {
         f.extra_tensors = 1;
         f.alignment = 1;
       }),
       "the tensor count"},
      {with([&](auto& f) { f.pair("k", 8, bytes_of(huge)); }), "the length of k"},
      {with([&](auto& f) { f.pair("k", 9, bytes_of(4u) + bytes_of(huge)); }), "the size of list k"},
      {with([](auto& f) { f.pair("k", 9, bytes_of(9u) + bytes_of(std::uint64_t{1})); }),
       "a list of unknown type 9"},
      {with([](auto& f) { f.pair("k", 13, floats(2)); }), "unknown type 13"},
      {with([](auto& f) { f.u32("k", 1).u32("k", 2); }), "metadata key k comes twice"},
      {with([](auto& f) { f.pair("k", 10, bytes_of(~std::uint64_t{0})); }), "k is 1844674407"},
      {with([](auto& f) { f.u32("general.alignment", 0); }), "general.alignment must be"},
      {with([](auto& f) { f.u32("general.alignment", 24); }), "a power of two"},
      {with([](auto& f) { f.string("general.alignment", "x"); }), "general.alignment must be"},
  });
}

TEST(Gguf, NamesEachFaultOfATensor) {
  const std::uint64_t wide = std::uint64_t{1} << 40;
  expect_faults({
      {with([](auto& f) { f.tensor("t", {}, kF32, floats(9)); }), "tensor t has 0 dimensions"},
      {with([](auto& f) {
         f.tensor("t", {1, 1, 1, 1, 1}, kF32, floats(1));
       }),
       "has 5 dimensions"},
      {with([](auto& f) { f.tensor("t", {0}, kF32, floats(1)); }), "impossible shape"},
      {with([&](auto& f) {
         f.tensor("t", {wide, wide}, kF32, floats(1));
       }),
       "impossible shape"},
      {with([](auto& f) { f.tensor("t", {4}, 16, floats(4)); }), "GGUF type number 16"},
      {with([](auto& f) { f.tensor("t", {33}, kQ8_0, floats(40)); }), "no whole number of Q8_0"},
      {with([](auto& f) { f.tensor("t", {4}, kF32, floats(4), 4); }),
       "no multiple of the alignment"},
      {with([](auto& f) { f.tensor("t", {4}, kF32, floats(4), 32); }), "tensor t ends at byte"},
      {with([](auto& f) { f.tensor("t", {4}, kF32, floats(3)); }), "tensor t ends at byte"},
      {with([&](auto& f) { f.tensor("t", {4}, kF32, floats(4), std::int64_t{1} << 62); }),
       "beyond the end"},
      {with([](auto& f) {
         f.tensor("t", {4}, kF32, floats(4)).tensor("u", {4}, kF32, floats(4), 0);
       }),
       "overlaps another one"},
      {with([](auto& f) { f.tensor("t", {4}, kF32, floats(4)).tensor("t", {4}, kF32, floats(4)); }),
       "tensor t comes twice"},
  });
}

std::string model_error(const GgufBuilder& builder) {
  const std::string bytes = builder.bytes();
  return config_error([&] {
    const GgufFile file = parse(bytes);
    gguf_config(file);
    gguf_tensors(file);
  });
}

TEST(Gguf, NamesWhatIsWrongWithTheModel) {
  EXPECT_NE(model_error(GgufBuilder()).find("general.architecture is missing"), std::string::npos);
  GgufBuilder mamba;
  mamba.string("general.architecture", "mamba");
  EXPECT_NE(model_error(mamba).find("architecture mamba is not supported"), std::string::npos);
  const std::string extra = model_error(tiny().tensor("blk.0.ssm.weight", {1}, kF32, floats(1)));
  EXPECT_NE(extra.find("tensor blk.0.ssm.weight"), std::string::npos) << extra;
  const std::string layer =
      model_error(tiny().tensor("blk.1.attn_q.weight", {4, 4}, kF32, floats(16)));
  EXPECT_NE(layer.find("tensor blk.1.attn_q.weight"), std::string::npos) << layer;
  const std::string experts = model_error(tiny().u32("llama.expert_count", 8));
  EXPECT_NE(experts.find("mixture of experts"), std::string::npos) << experts;
  const std::string rope = model_error(
      tiny().string("llama.rope.scaling.type", "strange").f32("llama.rope.scaling.factor", 2.0f));
  EXPECT_NE(rope.find("rope scaling strange"), std::string::npos) << rope;
}

TEST(Gguf, ReadsTheTokenizer) {
  const auto texts = [](const std::vector<std::string>& items) {
    std::string out = bytes_of(8u) + bytes_of(std::uint64_t{items.size()});
    for (const std::string& item : items) out += GgufBuilder::text(item);
    return out;
  };
  GgufBuilder builder;
  builder.string("tokenizer.ggml.model", "llama").string("tokenizer.ggml.pre", "default");
  builder.pair("tokenizer.ggml.tokens", 9, texts({"<unk>", "a", "b", "ab"}));
  builder.pair("tokenizer.ggml.merges", 9, texts({"a b"}));
  builder.pair(
      "tokenizer.ggml.scores", 9,
      bytes_of(6u) + bytes_of(std::uint64_t{2}) + bytes_of(std::vector<float>{-1.0f, -2.5f}));
  builder.pair(
      "tokenizer.ggml.token_type", 9,
      bytes_of(5u) + bytes_of(std::uint64_t{2}) + bytes_of(std::vector<std::int32_t>{2, 1}));
  builder.u32("tokenizer.ggml.bos_token_id", 3).pair("tokenizer.ggml.add_bos_token", 7, "\1");
  const std::string bytes = builder.bytes();
  const GgufVocabulary out = gguf_vocabulary(parse(bytes));
  EXPECT_EQ(out.model, "llama");
  EXPECT_EQ(out.tokens, (std::vector<std::string>{"<unk>", "a", "b", "ab"}));
  EXPECT_EQ(out.merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(out.scores, (std::vector<float>{-1.0f, -2.5f}));
  EXPECT_EQ(out.types, (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(out.bos, 3);
  EXPECT_EQ(out.eos, std::nullopt);
  EXPECT_EQ(out.add_bos, true);
  EXPECT_EQ(out.add_eos, std::nullopt);
  builder.u32("tokenizer.ggml.eos_token_id", 4);
  const std::string wrong = builder.bytes();
  EXPECT_NE(config_error([&] { gguf_vocabulary(parse(wrong)); }).find("eos_token_id must be"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::runtime
