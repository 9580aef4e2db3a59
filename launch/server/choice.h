// SPDX-License-Identifier: Apache-2.0
// One answer on its way from tokens to text: decoding, stop strings, what is still to be sent, and
// log-probabilities in OpenAI's two forms. Owns its decoder; the tokenizer must outlive it.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/server/completion_request.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

class Choice {
 public:
  Choice(int index, const CompletionRequest& request, const runtime::Tokenizer& tokenizer);

  /// Takes the next token, or the end. True when a stop string was found just now: generation
  /// goes on and has to be cancelled.
  bool push(const runtime::TokenEvent& event);

  /// The prompt's text goes before the answer's own (`echo`).
  void prepend(const std::string& text) { emit(text); }
  /// What the model thought of the prompt's tokens; before the answer's first token.
  void set_prompt_logprobs(const std::vector<std::int32_t>& prompt,
                           std::vector<std::vector<kernels::TokenLogprob>> logprobs);

  int index() const { return index_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  bool finished() const { return finish_ != runtime::FinishReason::kNone; }
  const char* finish_reason() const { return runtime::name(finish_); }
  /// The stop string or stop token id, or null.
  const boost::json::value& stop_reason() const { return stop_reason_; }

  /// Whether a streamed piece is due: new text, log-probabilities, or the end.
  bool has_news() const { return !unsent_.empty() || !entries_.empty() || end_unsent(); }
  bool end_unsent() const { return finished() && !end_sent_; }
  /// What was not taken yet. `take_logprobs` is null unless they were asked for.
  std::string take_text();
  boost::json::value take_logprobs();
  /// vLLM's form, an object by token id for each token but the first; null unless asked for.
  boost::json::value prompt_logprobs() const;
  void end_sent() { end_sent_ = true; }

 private:
  struct Entry {
    std::vector<kernels::TokenLogprob> logprobs;  ///< [0] the token, then the alternatives.
    std::int64_t text_offset = 0;                 ///< Characters of the answer before it.
    bool scored = true;                           ///< False: a prompt's first token.
  };

  void emit(const std::string& text);
  boost::json::object chat_entry(const kernels::TokenLogprob& logprob) const;
  boost::json::value chat_logprobs() const;
  boost::json::value completion_logprobs() const;
  std::string token_text(std::int32_t id) const;

  int index_;
  bool chat_, wants_logprobs_, tokens_as_ids_, include_stop_, echo_, prompt_only_;
  std::int32_t num_logprobs_;
  std::optional<std::int32_t> num_prompt_logprobs_;
  const runtime::Tokenizer& tokenizer_;
  runtime::StreamDecoder decoder_;
  runtime::StopMatcher stops_;
  std::vector<std::string> stop_strings_;
  std::string unsent_;
  std::vector<Entry> entries_;
  std::vector<std::vector<kernels::TokenLogprob>> prompt_logprobs_;
  std::int64_t num_tokens_ = 0, num_characters_ = 0;
  runtime::FinishReason finish_ = runtime::FinishReason::kNone;
  boost::json::value stop_reason_;
  std::vector<std::int32_t> stop_ids_;
  bool end_sent_ = false;
};

}  // namespace tandem::launch
