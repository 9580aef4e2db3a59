// SPDX-License-Identifier: Apache-2.0
// tokenizer.json, the format of `tokenizers`, and what tokenizer_config.json adds to it.
#include "kernels/device/error.h"
#include "runtime/text/tokenizer_parts.h"

namespace tandem::runtime {
namespace {

Vocabulary read_vocabulary(const JsonNode& node) {
  Vocabulary vocabulary;
  for (const auto& [token, id] : node.object()) {
    if (!id.is_int64()) node.at(token).fail("must be a token id");
    vocabulary.add(token, id.get_int64());
  }
  return vocabulary;
}

/// A merge is "left right" or, in newer files, ["left", "right"].
std::pair<std::string_view, std::string_view> read_merge(const JsonNode& list, std::size_t index) {
  const boost::json::value& merge = list.array()[index];
  if (merge.is_string()) {
    const std::string_view text = merge.get_string();
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos && space == text.rfind(' ')) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.get_array().size() == 2 &&
             merge.get_array()[0].is_string() && merge.get_array()[1].is_string()) {
    return {merge.get_array()[0].get_string(), merge.get_array()[1].get_string()};
  }
  list.element(index).fail("must name two tokens");
}

BpeModel read_model(const JsonNode& node) {
  const std::string_view type = node.string_or("type", "BPE");  // Old files leave it out.
  if (type != "BPE") node.fail(concat("has the type '", type, "', only BPE is supported"));
  if (const auto dropout = node.find("dropout")) {
    if (!dropout->value().is_number() || dropout->value().to_number<double>() != 0) {
      dropout->fail("must be 0 or null");
    }
  }
  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  BpeOptions options;
  options.continuing_subword_prefix = node.string_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = node.string_or("end_of_word_suffix", "");
  options.fuse_unknown = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  if (const auto unknown = node.find("unk_token")) {
    options.unknown = vocabulary.find(unknown->string());
    if (!options.unknown) unknown->fail("is not in the vocabulary");
  }
  const JsonNode list = node.at("merges");
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(list.array().size());
  for (std::size_t i = 0; i < list.array().size(); ++i) merges.push_back(read_merge(list, i));
  const auto rules = make_merge_rules(vocabulary, merges, options.continuing_subword_prefix);
  return {std::move(vocabulary), rules, std::move(options)};
}

AddedToken read_added_token(const JsonNode& node, const Vocabulary& vocabulary) {
  AddedToken token;
  token.content = node.at("content").string();
  const std::int64_t id = node.at("id").integer();
  if (id < 0 || id > kMaxTokenId) node.fail(concat("must have an id from 0 to ", kMaxTokenId));
  // A token that the model knows keeps the model's id, as in `tokenizers`.
  token.id = vocabulary.find(token.content).value_or(static_cast<TokenId>(id));
  token.special = node.boolean_or("special", false);
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  return token;
}

/// `bos_token` and its like: a string or an object with `content`.
std::optional<TokenId> read_named_token(const JsonNode& config, std::string_view key,
                                        const TokenizerParts& parts) {
  const auto node = config.find(key);
  if (!node) return std::nullopt;
  const std::string_view text =
      node->value().is_object() ? node->at("content").string() : node->string();
  const auto added = parts.added.find(text);
  return added ? added : parts.model.vocabulary().find(text);
}

/// `add_bos_token` and `add_eos_token`, when one is given, replace the post-processor.
void apply_config(const JsonNode& config, TokenizerParts& parts) {
  parts.bos = read_named_token(config, "bos_token", parts);
  parts.eos = read_named_token(config, "eos_token", parts);
  if (!config.find("add_bos_token") && !config.find("add_eos_token")) return;
  std::vector<TokenId> prefix, suffix;
  if (config.boolean_or("add_bos_token", false) && parts.bos) prefix.push_back(*parts.bos);
  if (config.boolean_or("add_eos_token", false) && parts.eos) suffix.push_back(*parts.eos);
  parts.post_processor = PostProcessor(std::move(prefix), std::move(suffix));
}

}  // namespace

TokenizerParts parts_from_json(const JsonNode& tokenizer, const JsonNode& config) {
  Normalizer normalizer;
  if (const auto node = tokenizer.find("normalizer")) normalizer = Normalizer::from_json(*node);
  PreTokenizer pre_tokenizer;
  if (const auto node = tokenizer.find("pre_tokenizer")) {
    pre_tokenizer = PreTokenizer::from_json(*node);
  }
  BpeModel model = read_model(tokenizer.at("model"));
  std::vector<AddedToken> added;
  if (const auto list = tokenizer.find("added_tokens")) {
    for (std::size_t i = 0; i < list->array().size(); ++i) {
      added.push_back(read_added_token(list->element(i), model.vocabulary()));
    }
  }
  AddedTokens added_tokens(std::move(added),
                           [&](std::string_view text) { return normalizer.apply(text); });
  PostProcessor post_processor;
  if (const auto node = tokenizer.find("post_processor")) {
    post_processor = PostProcessor::from_json(*node);
  }
  TokenDecoder decoder;
  if (const auto node = tokenizer.find("decoder")) decoder = TokenDecoder::from_json(*node);
  TokenizerParts parts{std::move(normalizer),
                       std::move(pre_tokenizer),
                       std::move(model),
                       std::move(added_tokens),
                       std::move(post_processor),
                       std::move(decoder),
                       std::nullopt,
                       std::nullopt};
  if (config.value().is_object()) apply_config(config, parts);
  return parts;
}

}  // namespace tandem::runtime
