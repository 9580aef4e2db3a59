// SPDX-License-Identifier: Apache-2.0
// The text of one sample as its tokens come: decoding, stop strings, and what is known at the end.
// One sample, one thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/request.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

class OutputText {
 public:
  /// `tokenizer` outlives it.
  OutputText(const runtime::Tokenizer& tokenizer, const runtime::SamplingParams& params)
      : decoder_(tokenizer), stops_(params.stop, params.include_stop_str) {}

  /// Takes one event and returns the text that may be shown now. `finished()` is true after the
  /// last one, or once a stop string was found; then the request should be cancelled.
  std::string push(const runtime::TokenEvent& event) {
    if (finished()) return {};
    std::string text;
    const bool is_stop_token = event.finish == runtime::FinishReason::kStop;
    if (event.token >= 0) {
      token_ids_.push_back(event.token);
      if (!is_stop_token) text = stops_.push(decoder_.push(event.token));
    }
    if (stops_.stopped()) {
      finish_ = runtime::FinishReason::kStop;
    } else if (event.finish != runtime::FinishReason::kNone) {
      finish_ = event.finish;
      text += stops_.push(decoder_.finish());
      text += stops_.finish();
    }
    text_ += text;
    return text;
  }

  bool finished() const { return finish_ != runtime::FinishReason::kNone; }
  bool stopped_by_string() const { return stops_.stopped(); }
  runtime::FinishReason finish_reason() const { return finish_; }
  const std::string& text() const { return text_; }
  const std::vector<std::int32_t>& token_ids() const { return token_ids_; }

 private:
  runtime::StreamDecoder decoder_;
  runtime::StopMatcher stops_;
  std::string text_;
  std::vector<std::int32_t> token_ids_;
  runtime::FinishReason finish_ = runtime::FinishReason::kNone;
};

}  // namespace tandem::launch
