// SPDX-License-Identifier: Apache-2.0
// The text side of the model that is served, and the way from a parsed request to token requests.
// Immutable after construction; its functions may be called from any thread.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/server/completion_request.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

struct ServedModel {
  std::string name;
  std::optional<runtime::Tokenizer> tokenizer;  ///< Without one there are only token ids.
  std::optional<runtime::ChatTemplate> chat_template;
  std::string bos_token, eos_token;
  runtime::SamplingParams defaults;
  std::int32_t max_model_len = 0;
  std::int32_t vocab_size = 0;  ///< Of the model: ids a request may name.

  /// The tokenizer, or ApiError 400 that names `field`, which needs one.
  const runtime::Tokenizer& text(const char* field) const;
  const runtime::Tokenizer* text_or_null() const { return tokenizer ? &*tokenizer : nullptr; }

  /// Token ids of a prompt; ApiError 400 for ids outside the vocabulary and text that is not UTF-8.
  std::vector<std::int32_t> tokens(const Prompt& prompt, bool add_special_tokens) const;

  /// Token ids of a conversation; ApiError 400 when the template refuses it or there is none.
  std::vector<std::int32_t> chat_tokens(const boost::json::array& messages,
                                        const boost::json::object& variables) const;

  /// One token request per prompt, checked against vocabulary and context length.
  std::vector<runtime::Request> token_requests(CompletionRequest& request) const;

 private:
  void fit(runtime::Request& request, const CompletionRequest& from) const;
  std::vector<std::vector<std::int32_t>> bad_word_tokens(
      const std::vector<std::string>& words) const;
};

}  // namespace tandem::launch
