// SPDX-License-Identifier: Apache-2.0
// What the comparison with other libraries cannot show: rules that differ between their versions,
// the translation of patterns, and the time for one long word.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "kernels/device/error.h"
#include "runtime/text/characters.h"
#include "runtime/text/regex.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"
#include "runtime/weights/gguf_config.h"

namespace tandem::runtime {
namespace {

TEST(Utf8, CutsBrokenBytesIntoMaximalSubparts) {
  const auto lossy = [](std::string bytes) {
    std::string out;
    move_lossy(bytes, out, true);
    return out;
  };
  // The example of table 3-8 of the Unicode standard.
  EXPECT_EQ(lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // A surrogate.
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xC0\xAF"), "\uFFFD\uFFFD");  // Overlong.
  EXPECT_EQ(lossy("ok \xF0\x9F\x91\x8D"), "ok 👍");
  EXPECT_EQ(first_invalid_utf8("12345678\xC3\xA9x\x80"), 11u);
  EXPECT_EQ(first_invalid_utf8("12345678\xC3\xA9"), std::nullopt);
}

TEST(Utf8, ByteAlphabetIsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto character = character_of_byte(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(byte_of_character(character), byte);
    EXPECT_GT(character, 32u);
  }
  EXPECT_EQ(character_of_byte(' '), U'Ġ');
  EXPECT_EQ(byte_of_character(U'é'), 0xE9);
  EXPECT_EQ(byte_of_character(U'你'), std::nullopt);
}

TEST(Characters, AtTheBorders) {
  EXPECT_EQ(white_space_at_start(" \u3000\nx "), 5u);
  EXPECT_EQ(white_space_at_end("x\u00A0\t"), 3u);
  EXPECT_EQ(white_space_at_end("\u180E"), 0u);
  EXPECT_TRUE(starts_with_word_character("é."));
  EXPECT_TRUE(ends_with_word_character(".\u0301"));
  EXPECT_FALSE(ends_with_word_character("a👍"));
  EXPECT_FALSE(starts_with_word_character(""));
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<Span> spans;
  Regex(pattern).find_all(text, 0, spans);
  std::vector<std::string> found;
  for (const Span span : spans) found.emplace_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

TEST(Regex, FollowsOnigurumaWherePcreDiffers) {
  using Found = std::vector<std::string>;
  EXPECT_EQ(matches(R"(\s)", "\u180E\u0085\u3000"), (Found{"\u0085", "\u3000"}));
  EXPECT_EQ(matches(R"([^\s]+)", "a\u180E b"), (Found{"a\u180E", "b"}));
  EXPECT_EQ(matches(R"(\w+)", "a\u0301_1 \u203F-"), (Found{"a\u0301_1", "\u203F"}));
  EXPECT_EQ(matches(R"(\p{Han}+)", "漢字ー、x"), (Found{"漢字"}));
  EXPECT_EQ(matches("^a$", "a\na"), (Found{"a", "a"}));
  EXPECT_EQ(matches("x*", "ax"), (Found{"", "x"}));
  EXPECT_EQ(matches(R"([^]a]+)", "b]ac"), (Found{"b", "c"}));
  EXPECT_THROW(Regex(R"([\W])"), ConfigError);
  EXPECT_THROW(Regex(R"([a[bc]])"), ConfigError);
  EXPECT_THROW(Regex(R"([a&&b])"), ConfigError);
}

Tokenizer small(const std::string& members) {
  return Tokenizer::from_json(
      boost::json::parse(R"({"model": {"vocab": {"t": 0, "h": 1, "e": 2, " ": 3, "th": 4},
        "merges": ["t h"]}, )" +
                         members + "}"),
      nullptr);
}

/// `tokenizers` 0.21 decodes such a token as it was written, 0.23 as it is after normalisation.
TEST(AddedTokens, NormalizedOnesAreFoundNormalizedAndDecodedAsWritten) {
  const Tokenizer tokenizer = small(R"("normalizer": {"type": "Lowercase"}, "added_tokens":
      [{"id": 9, "content": "The", "normalized": true}])");
  EXPECT_EQ(tokenizer.encode("the THE th"), (std::vector<TokenId>{9, 3, 9, 3, 4}));
  EXPECT_EQ(tokenizer.decode({9}), "The");
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(tokenizer.decode({5, 9}), "The");  // 5 is a hole.
}

TEST(AddedTokens, TheLongestOfTheLeftmostWins) {
  const Tokenizer tokenizer = small(R"("added_tokens": [{"id": 9, "content": "<a"},
      {"id": 10, "content": "<ab>"}, {"id": 11, "content": "b><ab"}])");
  EXPECT_EQ(tokenizer.encode("<ab><ab"), (std::vector<TokenId>{10, 9}));
}

/// Time for one word of `letters` letters, the best of three, in seconds of this thread.
double seconds_for_word(const Tokenizer& tokenizer, std::size_t letters) {
  std::mt19937 random(3);
  std::string word(letters, ' ');
  for (char& c : word) c = "etaoinshrdlu"[random() % 12];
  double best = 1e9;
  for (int run = 0; run < 3; ++run) {
    const std::clock_t start = std::clock();
    EXPECT_GT(tokenizer.encode(word).size(), letters / 8);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

/// A quadratic algorithm would take 16 times as long for a word four times as long.
TEST(TokenizerSpeed, IsLinearInTheLengthOfAWord) {
  for (const char* name : {"smollm", "llama2"}) {
    const auto tokenizer =
        Tokenizer::from_folder(std::filesystem::path(TANDEM_FIXTURES) / "text/tokenizers" / name);
    const double quarter = seconds_for_word(tokenizer, 250'000);
    const double whole = seconds_for_word(tokenizer, 1'000'000);
    EXPECT_LT(whole, 10 * quarter) << name;
    std::printf("%s, one word of a million letters: %.1f MB/s\n", name, 1 / whole);
  }
}

/// Prints the speed on English prose (with TANDEM_SMOLLM2 that of a real vocabulary).
TEST(TokenizerSpeed, OnProse) {
  const std::filesystem::path folder = std::filesystem::path(TANDEM_FIXTURES) / "text";
  const char* gguf = std::getenv("TANDEM_SMOLLM2");
  const Tokenizer tokenizer = gguf != nullptr
                                  ? Tokenizer::from_gguf(read_gguf_vocabulary(gguf))
                                  : Tokenizer::from_folder(folder / "tokenizers/smollm");
  std::ifstream corpus(folder / "corpus.txt");
  std::vector<std::string> words;
  for (std::string line; words.size() < 200 && std::getline(corpus, line);) {
    std::istringstream parts(line);
    for (std::string word; parts >> word;) words.push_back(word);
  }
  std::mt19937 random(5);
  std::string prose;
  while (prose.size() < 1'000'000) prose += words[random() % words.size()] + " ";
  const std::clock_t start = std::clock();
  const auto ids = tokenizer.encode(prose);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(tokenizer.decode(ids), prose);
  std::printf("prose: %.1f MB/s\n", static_cast<double>(prose.size()) / 1e6 / seconds);
}

}  // namespace
}  // namespace tandem::runtime
