// SPDX-License-Identifier: Apache-2.0
// The components that make a tokenizer, as its two builders (tokenizer.json, GGUF) fill them.
#pragma once

#include <optional>

#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe.h"
#include "runtime/text/normalizer.h"
#include "runtime/text/post_processor.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/token_decoder.h"

namespace tandem::runtime {

struct GgufVocabulary;

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  AddedTokens added;
  PostProcessor post_processor;
  TokenDecoder decoder;
  std::optional<TokenId> bos, eos;
};

/// From the values of tokenizer.json and tokenizer_config.json (null when there is none).
TokenizerParts parts_from_json(const JsonNode& tokenizer, const JsonNode& config);

TokenizerParts parts_from_gguf(const GgufVocabulary& vocabulary);

}  // namespace tandem::runtime
