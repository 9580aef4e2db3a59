// SPDX-License-Identifier: Apache-2.0
// Every fault of a tokenizer file is one sentence that names it.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>

#include "kernels/device/error.h"
#include "runtime/text/tokenizer.h"
#include "support/config_error.h"

namespace tandem::runtime {
namespace {

using testing::config_error;

/// A small right file in which `member` ("\"normalizer\": ...") is put at the end, which counts.
std::string with(const std::string& member) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})" +
         (member.empty() ? "" : ", " + member) + "}";
}

std::string load_error(const std::string& text, const std::string& config = "null") {
  return config_error(
      [&] { Tokenizer::from_json(boost::json::parse(text), boost::json::parse(config)); });
}

TEST(TokenizerBadInput, TheRightFileLoads) {
  const auto tokenizer = Tokenizer::from_json(boost::json::parse(with("")), nullptr);
  EXPECT_EQ(tokenizer.encode("abba"), (std::vector<TokenId>{2, 1, 0}));
}

TEST(TokenizerBadInput, EachFaultIsNamed) {
  const auto model = [](const std::string& members) {
    return R"({"model": {"type": "BPE", )" + members + "}}";
  };
  const std::vector<std::pair<std::string, std::string>> table{
      {"{}", "tokenizer.json: lacks 'model'"},
      {R"({"model": []})", "tokenizer.json: model must be an object"},
      {R"({"model": {"type": "WordPiece"}})", "has the type 'WordPiece', only BPE"},
      {model(R"("merges": [])"), "model lacks 'vocab'"},
      {model(R"("vocab": ["a"], "merges": [])"), "model.vocab must be an object"},
      {model(R"("vocab": {"a": "0"}, "merges": [])"), "model.vocab.a must be a token id"},
      {model(R"("vocab": {"a": 0.5}, "merges": [])"), "model.vocab.a must be a token id"},
      {model(R"("vocab": {"a": -1}, "merges": [])"), "the token 'a' has the id -1"},
      {model(R"("vocab": {"a": 2000000000}, "merges": [])"), "the token 'a' has the id 2000000000"},
      {model(R"("vocab": {"a": 18446744073709551615}, "merges": [])"), "model.vocab.a must be"},
      {model(R"("vocab": {"a": 0, "b": 0}, "merges": [])"),
       "the tokens 'a' and 'b' have the same id 0"},
      {model(R"("vocab": {"a": 0})"), "model lacks 'merges'"},
      {model(R"("vocab": {"a": 0}, "merges": {})"), "model.merges must be a list"},
      {model(R"("vocab": {"a": 0}, "merges": ["a"])"), "model.merges[0] must name two tokens"},
      {model(R"("vocab": {"a": 0}, "merges": ["a a a"])"), "model.merges[0] must name two tokens"},
      {model(R"("vocab": {"a": 0}, "merges": [["a", 1]])"), "model.merges[0] must name two tokens"},
      {model(R"("vocab": {"a": 0}, "merges": ["a b"])"),
       "merge 0 of the tokenizer needs the token 'b'"},
      {model(R"("vocab": {"a": 0, "b": 1}, "merges": ["a b"])"), "needs the token 'ab'"},
      {model(R"("vocab": {"a": 0}, "merges": [], "unk_token": "?")"),
       "model.unk_token is not in the vocabulary"},
      {model(R"("vocab": {"a": 0}, "merges": [], "dropout": 0.1)"), "model.dropout must be 0"},
      {model(R"("vocab": {"a": 0}, "merges": [], "byte_fallback": 1)"),
       "model.byte_fallback must be true or false"},
      {with(R"("normalizer": {"type": "Magic"})"), "normalizer is the unknown normalizer 'Magic'"},
      {with(R"("normalizer": "NFC")"), "normalizer must be an object"},
      {with(R"("normalizer": {"type": "Sequence"})"), "normalizer lacks 'normalizers'"},
      {with(R"("normalizer": {"type": "Replace", "pattern": {}, "content": "x"})"),
       "normalizer.pattern lacks 'String'"},
      {with(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": 3}]})"),
       "pre_tokenizer.pretokenizers[0].type must be a string"},
      {with(R"("pre_tokenizer": {"type": "Magic"})"), "is the unknown pre-tokenizer 'Magic'"},
      {with(
           R"x("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a(b"}, "behavior": "Isolated"})x"),
       "the pattern 'a(b' of the tokenizer is wrong near byte 3"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "No"})"),
       "behavior names the unknown behavior 'No'"},
      {with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "xy"})"),
       "replacement must be one character"},
      {with(R"("post_processor": {"type": "Magic"})"), "is the unknown post-processor 'Magic'"},
      {with(R"("post_processor": {"type": "TemplateProcessing", "single": []})"),
       "single must hold the text exactly once"},
      {with(R"("post_processor": {"type": "TemplateProcessing", "single":
        [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})"),
       "special_tokens lacks 'x'"},
      {with(R"("decoder": {"type": "Magic"})"), "decoder is the unknown decoder 'Magic'"},
      {with(R"("decoder": {"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
       "decoder.start must not be negative"},
      {with(R"("added_tokens": [{"content": "x"}])"), "added_tokens[0] lacks 'id'"},
      {with(R"("added_tokens": [{"content": "x", "id": 99999999999}])"),
       "added_tokens[0] must have an id from 0 to"},
      {with(R"("added_tokens": [{"content": "x", "id": 1}])"),
       "the tokens 'b' and 'x' have the same id 1"},
  };
  for (const auto& [text, expected] : table) {
    const std::string error = load_error(text);
    EXPECT_NE(error.find(expected), std::string::npos) << text << "\n" << error;
  }
}

TEST(TokenizerBadInput, ConfigIsChecked) {
  EXPECT_NE(load_error(with(""), R"({"add_bos_token": "yes"})").find("add_bos_token must be true"),
            std::string::npos);
  EXPECT_NE(load_error(with(""), R"({"bos_token": 5})").find("bos_token must be a string"),
            std::string::npos);
  EXPECT_EQ(load_error(with(""), R"({"bos_token": "unknown", "add_bos_token": true})"), "");
}

TEST(TokenizerBadInput, MissingFolderIsNamed) {
  const std::string error = config_error([] { Tokenizer::from_folder("/nowhere"); });
  EXPECT_NE(error.find("/nowhere/tokenizer.json"), std::string::npos) << error;
}

TEST(TokenizerBadInput, GgufFaultsAreNamed) {
  GgufVocabulary good;
  good.model = "llama";
  good.tokens = {"<unk>", "a", "b"};
  good.scores = {0, -1, -2};
  good.types = {2, 1, 1};
  const auto expect = [&](const std::string& expected, auto change) {
    GgufVocabulary gguf = good;
    change(gguf);
    const std::string error = config_error([&] { Tokenizer::from_gguf(gguf); });
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  };
  EXPECT_EQ(config_error([&] { Tokenizer::from_gguf(good); }), "");
  expect("has no tokenizer", [](GgufVocabulary& g) { g.tokens.clear(); });
  expect("of the kind 'bert'", [](GgufVocabulary& g) { g.model = "bert"; });
  expect("3 tokens but 2 scores", [](GgufVocabulary& g) { g.scores.pop_back(); });
  expect("3 tokens but 4 token types", [](GgufVocabulary& g) { g.types.push_back(1); });
  expect("without scores", [](GgufVocabulary& g) { g.scores.clear(); });
  expect("not a number",
         [](GgufVocabulary& g) { g.scores[1] = std::numeric_limits<float>::quiet_NaN(); });
  expect("names the special token 3 of 3", [](GgufVocabulary& g) { g.bos = 3; });
  expect("the token 'a' has two ids", [](GgufVocabulary& g) { g.tokens[2] = "a"; });
  good.model = "gpt2";
  expect("the pre-tokenizer 'magic'", [](GgufVocabulary& g) { g.pre = "magic"; });
  expect("has the merge 'ab'", [](GgufVocabulary& g) { g.merges = {"ab"}; });
  expect("needs the token 'c'", [](GgufVocabulary& g) { g.merges = {"a c"}; });
}

/// A merge may give back one of its own parts; every merge shortens the word all the same.
TEST(TokenizerBadInput, CyclesOfMergesEnd) {
  const auto tokenizer =
      Tokenizer::from_json(boost::json::parse(R"({"model": {"vocab": {"a": 0, "#": 1, "#a": 2},
        "merges": [["a", "#"]], "continuing_subword_prefix": "#"}})"),
                           nullptr);
  EXPECT_EQ(tokenizer.encode("aaaa"), (std::vector<TokenId>{0, 2, 2, 2}));
}

TEST(TokenizerBadInput, EndlessBacktrackingIsAnError) {
  const auto tokenizer = Tokenizer::from_json(
      boost::json::parse(with(R"x("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
        "pattern": {"Regex": "(a+a+)+bx"}})x")),
      nullptr);
  EXPECT_NE(config_error([&] {
              tokenizer.encode(std::string(40, 'a') + "cbx");
            }).find("fails on this text"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::runtime
