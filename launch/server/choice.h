// SPDX-License-Identifier: Apache-2.0
// One answer of a request: its text as it comes, what of it is still to be sent, and
// log-probabilities in OpenAI's two forms. The tokenizer must outlive it; without one there are
// only token ids.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/output_text.h"
#include "launch/server/completion_request.h"

namespace tandem::launch {

class Choice {
 public:
  Choice(int index, const CompletionRequest& request, const runtime::Tokenizer* tokenizer);

  /// Takes the next token, or the end. True when a stop string was found just now: generation
  /// goes on and has to be cancelled.
  bool push(const runtime::TokenEvent& event);

  /// The prompt's text goes before the answer's own (`echo`).
  void prepend(const std::string& text) { emit(text); }
  /// What the model thought of the prompt's tokens; before the answer's first token.
  void set_prompt_logprobs(const std::vector<std::int32_t>& prompt,
                           std::vector<std::vector<kernels::TokenLogprob>> logprobs);

  int index() const { return index_; }
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(output_.token_ids().size()); }
  bool finished() const { return prompt_done_ || output_.finished(); }
  const char* finish_reason() const;
  /// The stop string or stop token id, or null.
  boost::json::value stop_reason() const;

  /// Whether a streamed piece is due: new text, log-probabilities, or the end.
  bool has_news() const {
    return !unsent_.empty() || !entries_.empty() || end_unsent() ||
           (wants_token_ids_ && sent_ids_ < output_.token_ids().size());
  }
  bool end_unsent() const { return finished() && !end_sent_; }
  /// What was not taken yet. `take_logprobs` and `take_token_ids` are null unless asked for.
  std::string take_text();
  boost::json::value take_logprobs();
  boost::json::value take_token_ids();
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
  bool chat_, wants_logprobs_, wants_token_ids_, tokens_as_ids_, echo_, prompt_only_;
  std::int32_t num_logprobs_;
  std::optional<std::int32_t> num_prompt_logprobs_;
  const runtime::Tokenizer* tokenizer_;
  OutputText output_;
  std::vector<std::string> stop_strings_;
  std::vector<std::int32_t> stop_ids_;
  std::string unsent_;
  std::vector<Entry> entries_;
  std::vector<std::vector<kernels::TokenLogprob>> prompt_logprobs_;
  std::size_t sent_ids_ = 0;
  std::int64_t num_characters_ = 0;
  bool prompt_done_ = false;  ///< The end of an answer that is only its prompt.
  bool end_sent_ = false;
};

}  // namespace tandem::launch
