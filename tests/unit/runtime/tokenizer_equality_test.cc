// SPDX-License-Identifier: Apache-2.0
// Equality, id by id and back, with Hugging Face `tokenizers` and with SentencePiece on the texts
// of tests/fixtures/text (made by make_fixtures.py there).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/algorithm/string/replace.hpp>
#include <boost/crc.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/json_file.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"
#include "runtime/weights/gguf_config.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;
using Ids = std::vector<TokenId>;

const std::filesystem::path kFolder = std::filesystem::path(TANDEM_FIXTURES) / "text";
constexpr std::uint64_t kBlock = 500;  ///< Random texts that share one checksum.

/// SplitMix64, as texts.py has it.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next(std::uint64_t bound) {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % bound;
  }

 private:
  std::uint64_t state_;
};

struct Texts {
  std::vector<std::string> table, fragments;
  std::uint64_t random_count = 0;

  /// `random_text` of texts.py.
  std::string random_text(std::uint64_t index) const {
    Random random(index);
    const std::uint64_t count = random.next(40);
    std::string text;
    if (index % 2 == 0) {
      for (std::uint64_t i = 0; i < count; ++i) text += fragments[random.next(fragments.size())];
      return text;
    }
    std::string raw;
    for (std::uint64_t i = 0; i < count; ++i) {
      constexpr std::array<std::uint8_t, 4> kParts{0xC3, 0xE2, 0x80, 0x9F};
      const std::uint64_t kind = random.next(4);
      if (kind < 2) {
        raw += static_cast<char>(32 + random.next(95));
      } else if (kind == 2) {
        raw += static_cast<char>(kParts[random.next(4)]);
      } else {
        raw += static_cast<char>(random.next(256));
      }
    }
    move_lossy(raw, text, true);
    return text;
  }
};

std::vector<std::string> strings(const json::value& list) {
  return json::value_to<std::vector<std::string>>(list);
}
Ids ids_of(const json::value& list) { return json::value_to<Ids>(list); }

const Texts& texts() {
  static const Texts all = [] {
    const json::object file = read_json_object(kFolder / "texts.json");
    return Texts{strings(file.at("table")), strings(file.at("fragments")),
                 file.at("random_count").to_number<std::uint64_t>()};
  }();
  return all;
}

class Checksum {
 public:
  void add(const Ids& ids) {
    static_assert(std::endian::native == std::endian::little);
    crc_.process_bytes(ids.data(), ids.size() * sizeof(TokenId));
  }
  void add(const std::string& text) { crc_.process_bytes(text.c_str(), text.size() + 1); }
  std::int64_t value() const { return crc_.checksum(); }

 private:
  boost::crc_32_type crc_;
};

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder stream(tokenizer, false);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_FALSE(first_invalid_utf8(piece));
    text += piece;
  }
  return text + stream.finish();
}

void expect_table(const Tokenizer& tokenizer, const json::object& expected) {
  const json::array& rows = expected.at("table").as_array();
  ASSERT_EQ(rows.size(), texts().table.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string& text = texts().table[i];
    const json::object& row = rows[i].as_object();
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, ids_of(row.at("ids"))) << text;
    const json::value& plain = row.contains("plain") ? row.at("plain") : row.at("ids");
    EXPECT_EQ(tokenizer.encode(text, {false, false}), ids_of(plain)) << text;
    const auto decoded = [&](const char* key) {
      return row.contains(key) ? std::string(row.at(key).as_string()) : text;
    };
    EXPECT_EQ(tokenizer.decode(ids, false), decoded("decoded"));
    EXPECT_EQ(tokenizer.decode(ids, true), decoded("decoded_without_special"));
    EXPECT_EQ(streamed(tokenizer, ids), decoded("decoded"));
  }
}

void expect_random(const Tokenizer& tokenizer, const json::object& expected) {
  const json::array& blocks = expected.at("random").as_array();
  const auto step = expected.at("random_step").to_number<std::uint64_t>();
  ASSERT_EQ(blocks.size() * kBlock, texts().random_count);
  for (std::uint64_t block = 0; block < blocks.size(); ++block) {
    Checksum ids_sum, text_sum;
    for (std::uint64_t i = block * kBlock; i < (block + 1) * kBlock; i += step) {
      Ids ids = tokenizer.encode(texts().random_text(i));
      text_sum.add(tokenizer.decode(ids, false));
      ids.push_back(-1);
      ids_sum.add(ids);
    }
    EXPECT_EQ(ids_sum.value(), blocks[block].at("ids").to_number<std::int64_t>()) << block;
    EXPECT_EQ(text_sum.value(), blocks[block].at("decoded").to_number<std::int64_t>()) << block;
  }
  Checksum sum;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Random random(std::uint64_t{1} << 32 | i);
    Ids ids(random.next(30));
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(random.next(static_cast<std::uint64_t>(tokenizer.vocab_size())));
    }
    sum.add(streamed(tokenizer, ids));
  }
  EXPECT_EQ(sum.value(), expected.at("random_ids").to_number<std::int64_t>());
}

json::object expected_of(const std::string& name) {
  return read_json_object(kFolder / "expected" / (name + ".json"));
}

class TokenizerEquality : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerEquality, Table) {
  expect_table(Tokenizer::from_folder(kFolder / "tokenizers" / GetParam()),
               expected_of(GetParam()));
}

TEST_P(TokenizerEquality, Random) {
  expect_random(Tokenizer::from_folder(kFolder / "tokenizers" / GetParam()),
                expected_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerEquality,
                         testing::Values("gpt2", "smollm", "llama3", "qwen2", "deepseek_v3",
                                         "deepseek_coder", "tekken", "o200k", "roberta", "clip",
                                         "llama2", "mistral", "phi3", "gemma", "metaspace", "words",
                                         "suffix"),
                         [](const auto& name) { return name.param; });

/// The GGUF vocabulary that a byte-level tokenizer.json would be converted to.
GgufVocabulary as_gguf(const std::string& name, const std::string& pre) {
  const json::object file = read_json_object(kFolder / "tokenizers" / name / "tokenizer.json");
  const json::object& model = file.at("model").as_object();
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = pre;
  const auto put = [&](std::string_view token, std::size_t id, std::int32_t type) {
    gguf.tokens.resize(std::max(gguf.tokens.size(), id + 1));
    gguf.types.resize(gguf.tokens.size());
    gguf.tokens[id] = token;
    gguf.types[id] = type;
  };
  for (const auto& [token, id] : model.at("vocab").as_object()) {
    put(token, id.to_number<std::size_t>(), 1);
  }
  for (const json::value& token : file.at("added_tokens").as_array()) {
    put(token.at("content").as_string(), token.at("id").to_number<std::size_t>(),
        token.at("special").as_bool() ? 3 : 4);
  }
  for (const json::value& merge : model.at("merges").as_array()) {
    const auto pair = strings(merge);
    gguf.merges.push_back(pair[0] + " " + pair[1]);
  }
  const auto id = [&](std::string_view token) {
    return static_cast<TokenId>(std::find(gguf.tokens.begin(), gguf.tokens.end(), token) -
                                gguf.tokens.begin());
  };
  gguf.bos = id("<|endoftext|>");
  gguf.eos = id("<|im_end|>");
  return gguf;
}

TEST(TokenizerGguf, ByteLevelEqualsTokenizerJson) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"gpt2", "gpt-2"},
      {"smollm", "smollm"},
      {"llama3", "llama-bpe"},
      {"qwen2", "qwen2"},
      {"tekken", "tekken"},
      {"o200k", "gpt-4o"},
      {"deepseek_v3", "deepseek-v3"},
      {"deepseek_coder", "deepseek-coder"}};
  for (const auto& [name, pre] : names) {
    SCOPED_TRACE(name);
    GgufVocabulary gguf = as_gguf(name, pre);
    if (name == "deepseek_v3") {
      gguf.add_bos = true;
      gguf.bos = Tokenizer::from_gguf(gguf).token_to_id("<|im_start|>");
    }
    const Tokenizer tokenizer = Tokenizer::from_gguf(gguf);
    expect_table(tokenizer, expected_of(name));
    expect_random(tokenizer, expected_of(name));
  }
}

TEST(TokenizerGguf, SentencePieceScores) {
  const json::object file = read_json_object(kFolder / "gguf_llama.json");
  GgufVocabulary gguf;
  gguf.model = "llama";
  gguf.tokens = strings(file.at("tokens"));
  gguf.types = ids_of(file.at("types"));
  for (const json::value& score : file.at("scores").as_array()) {
    gguf.scores.push_back(score.to_number<float>());
  }
  gguf.unknown = 0;
  gguf.bos = 1;
  gguf.eos = 2;
  const Tokenizer tokenizer = Tokenizer::from_gguf(gguf);
  for (std::size_t i = 0; i < texts().table.size(); ++i) {
    const std::string& text = texts().table[i];
    const Ids ids = tokenizer.encode(text, {.parse_special = false});
    EXPECT_EQ(ids, ids_of(file.at("expected").at(i))) << text;
    std::string decoded = text;  // SentencePiece cannot tell its own space from a space.
    boost::algorithm::replace_all(decoded, "▁", " ");
    EXPECT_EQ(tokenizer.decode(ids), decoded);
  }
  const json::array& blocks = file.at("random").as_array();
  for (std::uint64_t block = 0; block < blocks.size(); ++block) {
    Checksum sum;
    for (std::uint64_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
      Ids ids = tokenizer.encode(texts().random_text(i), {false, false});
      ids.push_back(-1);
      sum.add(ids);
    }
    EXPECT_EQ(sum.value(), blocks[block].to_number<std::int64_t>()) << block;
  }
}

/// Where launch/quickstart.sh puts the model; TANDEM_SMOLLM2 names another place.
std::filesystem::path smollm2_path() {
  if (const char* path = std::getenv("TANDEM_SMOLLM2")) return path;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  return (cache != nullptr ? std::filesystem::path(cache)
                           : std::filesystem::path(home != nullptr ? home : "") / ".cache") /
         "tandem/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// The real vocabulary, when the model is there.
TEST(TokenizerGguf, SmolLm2) {
  const std::filesystem::path path = smollm2_path();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path;
  const Tokenizer tokenizer = Tokenizer::from_gguf(read_gguf_vocabulary(path));
  expect_table(tokenizer, expected_of("smollm2"));
  expect_random(tokenizer, expected_of("smollm2"));
}

}  // namespace
}  // namespace tandem::runtime
