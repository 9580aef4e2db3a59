// SPDX-License-Identifier: Apache-2.0
// The text of one sample as its tokens come: decoding, stop strings, and what is known at the end.
// One sample, one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/request.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

class OutputText {
 public:
  /// `tokenizer` outlives it; null: tokens are counted, there is no text.
  OutputText(const runtime::Tokenizer* tokenizer, const runtime::SamplingParams& params,
             bool skip_special_tokens = true)
      : stops_(params.stop, params.include_stop_str), include_stop_(params.include_stop_str) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, skip_special_tokens);
  }

  /// Takes one event and returns the text that may be shown now. `finished()` is true after the
  /// last one, or once a stop string was found; then the request should be cancelled.
  std::string push(const runtime::TokenEvent& event) {
    if (finished()) return {};
    std::string text;
    finish_ = event.finish;
    if (event.token >= 0) {
      token_ids_.push_back(event.token);
      // The token that ended the answer is not part of its text, unless that was asked for.
      const bool hidden = event.finish == runtime::FinishReason::kStop && !include_stop_;
      if (!hidden && decoder_) text = stops_.push(decoder_->push(event.token));
    }
    if (finished() && !stops_.stopped() && decoder_) text += stops_.push(decoder_->finish());
    if (stops_.stopped()) {
      finish_ = runtime::FinishReason::kStop;
    } else if (finished()) {
      text += stops_.finish();
    }
    text_ += text;
    return text;
  }

  bool finished() const { return finish_ != runtime::FinishReason::kNone; }
  bool stopped_by_string() const { return stops_.stopped(); }
  /// Which of the stop strings ended it.
  std::optional<std::size_t> matched_stop() const { return stops_.matched(); }
  runtime::FinishReason finish_reason() const { return finish_; }
  const std::string& text() const { return text_; }
  const std::vector<std::int32_t>& token_ids() const { return token_ids_; }

 private:
  std::optional<runtime::StreamDecoder> decoder_;
  runtime::StopMatcher stops_;
  bool include_stop_;
  std::string text_;
  std::vector<std::int32_t> token_ids_;
  runtime::FinishReason finish_ = runtime::FinishReason::kNone;
};

}  // namespace tandem::launch
