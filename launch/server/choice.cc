// SPDX-License-Identifier: Apache-2.0
#include "launch/server/choice.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

namespace tandem::launch {
namespace json = boost::json;

Choice::Choice(int index, const CompletionRequest& request, const runtime::Tokenizer& tokenizer)
    : index_(index),
      chat_(request.chat),
      wants_logprobs_(request.params.logprobs.has_value()),
      tokens_as_ids_(request.tokens_as_ids),
      include_stop_(request.params.include_stop_str),
      tokenizer_(tokenizer),
      decoder_(tokenizer, request.skip_special_tokens),
      stops_(request.params.stop, request.params.include_stop_str),
      stop_strings_(request.params.stop),
      stop_ids_(request.params.stop_token_ids) {}

void Choice::emit(const std::string& text) {
  unsent_ += text;
  num_characters_ += std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
}

bool Choice::push(const runtime::TokenEvent& event) {
  if (finished()) return false;
  finish_ = event.finish;
  if (event.token >= 0) {
    ++num_tokens_;
    if (wants_logprobs_) entries_.push_back({event.logprobs, num_characters_});
    // The token that ended the answer is not part of its text, unless that was asked for.
    const bool hidden = event.finish == runtime::FinishReason::kStop && !include_stop_;
    if (!hidden) emit(stops_.push(decoder_.push(event.token)));
    if (event.finish == runtime::FinishReason::kStop &&
        std::find(stop_ids_.begin(), stop_ids_.end(), event.token) != stop_ids_.end()) {
      stop_reason_ = event.token;
    }
  }
  if (finished() && !stops_.stopped()) emit(stops_.push(decoder_.finish()));
  if (stops_.stopped()) {
    const bool running = !finished();
    finish_ = runtime::FinishReason::kStop;
    stop_reason_ = json::value(stop_strings_[*stops_.matched()]);
    return running;
  }
  if (finished()) emit(stops_.finish());
  return false;
}

std::string Choice::take_text() { return std::exchange(unsent_, {}); }

json::value Choice::take_logprobs() {
  if (!wants_logprobs_) return nullptr;
  json::value result = chat_ ? chat_logprobs() : completion_logprobs();
  entries_.clear();
  return result;
}

std::string Choice::token_text(std::int32_t id) const {
  return tokens_as_ids_ ? "token_id:" + std::to_string(id) : tokenizer_.decode({id}, false);
}

json::object Choice::chat_entry(const kernels::TokenLogprob& logprob) const {
  json::array bytes;
  for (const char byte : tokenizer_.token_bytes(logprob.id)) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", token_text(logprob.id)}, {"logprob", logprob.logprob}, {"bytes", bytes}};
}

json::value Choice::chat_logprobs() const {
  json::array content;
  for (const Entry& entry : entries_) {
    json::object item = chat_entry(entry.logprobs[0]);
    json::array top;
    for (std::size_t i = 1; i < entry.logprobs.size(); ++i) {
      top.push_back(chat_entry(entry.logprobs[i]));
    }
    item["top_logprobs"] = std::move(top);
    content.push_back(std::move(item));
  }
  return json::object{{"content", std::move(content)}};
}

json::value Choice::completion_logprobs() const {
  json::array tokens, logprobs, top, offsets;
  for (const Entry& entry : entries_) {
    tokens.push_back(json::value(token_text(entry.logprobs[0].id)));
    logprobs.push_back(entry.logprobs[0].logprob);
    json::object best;
    for (const auto& alternative : entry.logprobs) {
      best[token_text(alternative.id)] = alternative.logprob;
    }
    top.push_back(std::move(best));
    offsets.push_back(entry.text_offset);
  }
  return json::object{{"tokens", std::move(tokens)},
                      {"token_logprobs", std::move(logprobs)},
                      {"top_logprobs", std::move(top)},
                      {"text_offset", std::move(offsets)}};
}

}  // namespace tandem::launch
