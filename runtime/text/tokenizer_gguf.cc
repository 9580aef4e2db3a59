// SPDX-License-Identifier: Apache-2.0
// The tokenizer that a GGUF file describes (`tokenizer.ggml.*`; the names are those of llama.cpp),
// put together from the same components as the tokenizer.json of the same model.
#include <algorithm>
#include <boost/json.hpp>
#include <numeric>

#include "kernels/device/error.h"
#include "runtime/text/gguf_pre_tokenizers.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_parts.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;

enum TokenType { kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr std::string_view kMetaspace = "\xE2\x96\x81";

void check(const GgufVocabulary& gguf) {
  const std::size_t count = gguf.tokens.size();
  TANDEM_REQUIRE(count > 0,
                 "the GGUF file has no tokenizer; give a file with tokenizer.ggml.tokens");
  const auto check_size = [&](std::size_t size, std::string_view name) {
    TANDEM_REQUIRE(size == 0 || size == count, "the GGUF file has ", count, " tokens but ", size,
                   " ", name, "; download the file again");
  };
  check_size(gguf.scores.size(), "scores");
  check_size(gguf.types.size(), "token types");
  for (const auto& id : {gguf.bos, gguf.eos, gguf.unknown, gguf.padding}) {
    TANDEM_REQUIRE(!id || (*id >= 0 && static_cast<std::size_t>(*id) < count),
                   "the GGUF file names the special token ", id.value_or(0), " of ", count,
                   " tokens; download the file again");
  }
}

int type_of(const GgufVocabulary& gguf, std::size_t id) {
  return gguf.types.empty() ? 1 : gguf.types[id];
}

std::vector<AddedToken> added_tokens(const GgufVocabulary& gguf) {
  std::vector<AddedToken> added;
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    const int type = type_of(gguf, id);
    if (type != kUnknown && type != kControl && type != kUserDefined) continue;
    AddedToken token;
    token.content = gguf.tokens[id];
    token.id = static_cast<TokenId>(id);
    token.special = type != kUserDefined;
    added.push_back(std::move(token));
  }
  return added;
}

Vocabulary make_vocabulary(const GgufVocabulary& gguf) {
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    vocabulary.add(gguf.tokens[id], static_cast<std::int64_t>(id));
  }
  return vocabulary;
}

PostProcessor make_post_processor(const GgufVocabulary& gguf, bool add_bos_default) {
  std::vector<TokenId> prefix, suffix;
  if (gguf.add_bos.value_or(add_bos_default) && gguf.bos) prefix.push_back(*gguf.bos);
  if (gguf.add_eos.value_or(false) && gguf.eos) suffix.push_back(*gguf.eos);
  return {std::move(prefix), std::move(suffix)};
}

/// SentencePiece merges two neighbours when their concatenation is a token, that of the highest
/// score first: every way to cut a token in two is a rule of that token's rank.
std::vector<MergeRule> rules_from_scores(const GgufVocabulary& gguf, const Vocabulary& vocabulary) {
  std::vector<std::size_t> by_score(gguf.tokens.size());
  std::iota(by_score.begin(), by_score.end(), std::size_t{0});
  std::stable_sort(by_score.begin(), by_score.end(),
                   [&](std::size_t a, std::size_t b) { return gguf.scores[a] > gguf.scores[b]; });
  std::vector<MergeRule> rules;
  std::int32_t rank = 0;
  for (const std::size_t id : by_score) {
    const int type = type_of(gguf, id);
    if (type == kUnknown || type == kControl || type == kUnused || type == kByte) continue;
    const std::string_view text = gguf.tokens[id];
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = vocabulary.find(text.substr(0, cut));
      const auto right = left ? vocabulary.find(text.substr(cut)) : std::nullopt;
      if (right) rules.push_back({*left, *right, static_cast<TokenId>(id), rank});
    }
    ++rank;
  }
  return rules;
}

TokenizerParts sentencepiece_parts(const GgufVocabulary& gguf) {
  TANDEM_REQUIRE(!gguf.scores.empty(), "the GGUF file has a 'llama' tokenizer without scores; ",
                 "download the file again");
  TANDEM_REQUIRE(std::none_of(gguf.scores.begin(), gguf.scores.end(),
                              [](float score) { return score != score; }),
                 "the GGUF file has a token score that is not a number; download the file again");
  const bool prefix = gguf.add_space_prefix.value_or(true);
  json::array normalizers, decoders;
  const auto add = [](json::array& steps, std::string_view type, json::object step) {
    step["type"] = type;
    steps.emplace_back(std::move(step));
  };
  if (prefix) add(normalizers, "Prepend", {{"prepend", kMetaspace}});
  add(normalizers, "Replace", {{"pattern", {{"String", " "}}}, {"content", kMetaspace}});
  add(decoders, "Replace", {{"pattern", {{"String", kMetaspace}}}, {"content", " "}});
  add(decoders, "ByteFallback", {});
  add(decoders, "Fuse", {});
  if (prefix) add(decoders, "Strip", {{"content", " "}, {"start", 1}, {"stop", 0}});
  const json::value normalizer = {{"type", "Sequence"}, {"normalizers", normalizers}};
  const json::value decoder = {{"type", "Sequence"}, {"decoders", decoders}};

  Vocabulary vocabulary = make_vocabulary(gguf);
  const std::vector<MergeRule> rules = rules_from_scores(gguf, vocabulary);
  BpeOptions options;
  options.unknown = gguf.unknown;
  options.fuse_unknown = true;
  options.byte_fallback = true;
  return {Normalizer::from_json({normalizer, "normalizer"}),
          PreTokenizer(),
          BpeModel(std::move(vocabulary), rules, std::move(options)),
          AddedTokens(added_tokens(gguf), [](std::string_view text) { return std::string(text); }),
          make_post_processor(gguf, true),
          TokenDecoder::from_json({decoder, "decoder"}),
          gguf.bos,
          gguf.eos};
}

TokenizerParts byte_level_parts(const GgufVocabulary& gguf) {
  const GgufPreTokenizer pre = gguf_pre_tokenizer(gguf.pre);
  json::array stages;
  for (const std::string_view pattern : pre.splits) {
    stages.emplace_back(json::object{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}});
  }
  stages.emplace_back(json::object{{"type", "ByteLevel"},
                                   {"add_prefix_space", gguf.add_space_prefix.value_or(false)},
                                   {"use_regex", pre.gpt2_regex}});
  const json::value pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", stages}};
  const json::value nfc = json::object{{"type", "NFC"}};
  const json::value decoder = json::object{{"type", "ByteLevel"}};

  Vocabulary vocabulary = make_vocabulary(gguf);
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (const std::string_view merge : gguf.merges) {
    const std::size_t space = merge.find(' ', 1);
    TANDEM_REQUIRE(space != std::string_view::npos, "the GGUF file has the merge '", merge,
                   "', which must name two tokens; download the file again");
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  const std::vector<MergeRule> rules = make_merge_rules(vocabulary, merges, "");
  BpeOptions options;
  options.ignore_merges = pre.ignore_merges;
  return {pre.nfc ? Normalizer::from_json({nfc, "normalizer"}) : Normalizer(),
          PreTokenizer::from_json({pre_tokenizer, "pre_tokenizer"}),
          BpeModel(std::move(vocabulary), rules, std::move(options)),
          AddedTokens(added_tokens(gguf), [](std::string_view text) { return std::string(text); }),
          make_post_processor(gguf, pre.add_bos),
          TokenDecoder::from_json({decoder, "decoder"}),
          gguf.bos,
          gguf.eos};
}

}  // namespace

TokenizerParts parts_from_gguf(const GgufVocabulary& gguf) {
  check(gguf);
  if (gguf.model == "gpt2") return byte_level_parts(gguf);
  if (gguf.model == "llama") return sentencepiece_parts(gguf);
  throw ConfigError(concat("the GGUF file has a tokenizer of the kind '", gguf.model,
                           "', only 'gpt2' and 'llama' are supported; use another file"));
}

}  // namespace tandem::runtime
