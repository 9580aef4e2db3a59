// SPDX-License-Identifier: Apache-2.0
// The pipeline on a vocabulary small enough to merge by hand.
#include "runtime/text/tokenizer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "kernels/device/error.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

/// All bytes (ids 0-255), then "lo" 256, "hel" 257, "hello" 258 ("he" is 259), "\u0120w" 260.
GgufVocabulary hello_vocabulary() {
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = "smollm";
  for (int byte = 0; byte < 256; ++byte) {
    append_utf8(gguf.tokens.emplace_back(), character_of_byte(static_cast<std::uint8_t>(byte)));
  }
  for (const char* token : {"lo", "hel", "hello", "he", "Ġw", "<|end|>", "<|tool|>"}) {
    gguf.tokens.emplace_back(token);
  }
  gguf.types.assign(gguf.tokens.size(), 1);
  gguf.types[261] = 3;  // Control.
  gguf.types[262] = 4;  // User-defined.
  gguf.merges = {"l o", "h e", "he l", "hel lo", "Ġ w"};
  gguf.bos = gguf.eos = 261;
  return gguf;
}

TEST(Tokenizer, MergesByRank) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(hello_vocabulary());
  EXPECT_EQ(tokenizer.encode("hello"), (std::vector<TokenId>{258}));
  EXPECT_EQ(tokenizer.encode("hell"), (std::vector<TokenId>{257, 'l'}));
  EXPECT_EQ(tokenizer.encode("helo"), (std::vector<TokenId>{259, 256}));
  EXPECT_EQ(tokenizer.encode("hello w12"), (std::vector<TokenId>{258, 260, '1', '2'}));
  EXPECT_EQ(tokenizer.encode("é"), (std::vector<TokenId>{0xC3, 0xA9}));
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(Tokenizer, SpecialTokensAreTokensOnlyWhenParsed) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(hello_vocabulary());
  EXPECT_EQ(tokenizer.encode("lo<|end|>lo"), (std::vector<TokenId>{256, 261, 256}));
  const auto plain = tokenizer.encode("lo<|end|>", {.parse_special = false});
  EXPECT_EQ(plain, (std::vector<TokenId>{256, '<', '|', 'e', 'n', 'd', '|', '>'}));
  // What the user defined is not special: it stays a token.
  EXPECT_EQ(tokenizer.encode("<|tool|>", {.parse_special = false}), (std::vector<TokenId>{262}));
  EXPECT_TRUE(tokenizer.is_special(261));
  EXPECT_FALSE(tokenizer.is_special(262));
  EXPECT_EQ(tokenizer.decode({256, 261, 262}), "lo<|tool|>");
  EXPECT_EQ(tokenizer.decode({256, 261, 262}, false), "lo<|end|><|tool|>");
}

TEST(Tokenizer, BosAndEosAreAddedOnRequest) {
  GgufVocabulary gguf = hello_vocabulary();
  gguf.add_bos = gguf.add_eos = true;
  const Tokenizer tokenizer = Tokenizer::from_gguf(gguf);
  EXPECT_EQ(tokenizer.encode("lo"), (std::vector<TokenId>{261, 256, 261}));
  EXPECT_EQ(tokenizer.encode("lo", {.add_special_tokens = false}), (std::vector<TokenId>{256}));
  EXPECT_EQ(tokenizer.bos(), 261);
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(hello_vocabulary());
  EXPECT_EQ(tokenizer.vocab_size(), 263);
  EXPECT_EQ(tokenizer.token_to_id("hello"), 258);
  EXPECT_EQ(tokenizer.token_to_id("<|end|>"), 261);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.token_bytes(260), " w");
  EXPECT_EQ(tokenizer.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(263), "");
  EXPECT_THROW(tokenizer.decode({-1}), ConfigError);
  EXPECT_THROW(tokenizer.encode("ab\xFF"), ConfigError);
}

TEST(StreamDecoder, IgnoresIdsThatAreNoToken) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(hello_vocabulary());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(263), "");
  EXPECT_EQ(stream.push(258), "hello");
}

TEST(StreamDecoder, NeverGivesHalfACharacter) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(hello_vocabulary());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(258), "hello");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x91), "");
  EXPECT_EQ(stream.push(0x8D), "👍");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('x'), "\xEF\xBF\xBDx");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tandem::runtime
