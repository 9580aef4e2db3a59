// SPDX-License-Identifier: Apache-2.0
#include "launch/server/choice.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

namespace tandem::launch {
namespace json = boost::json;

namespace {

std::int64_t count_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

/// JSON has no infinity; what can never come gets vLLM's value.
float finite(float logprob) { return std::max(logprob, -9999.0f); }

}  // namespace

Choice::Choice(int index, const CompletionRequest& request, const runtime::Tokenizer* tokenizer)
    : index_(index),
      chat_(request.chat),
      wants_logprobs_(request.params.logprobs.has_value()),
      wants_token_ids_(request.return_token_ids || tokenizer == nullptr),
      tokens_as_ids_(request.tokens_as_ids || tokenizer == nullptr),
      echo_(request.echo),
      prompt_only_(request.prompt_only),
      num_logprobs_(request.params.logprobs.value_or(0)),
      num_prompt_logprobs_(request.prompt_logprobs),
      tokenizer_(tokenizer),
      output_(tokenizer, request.params, request.skip_special_tokens),
      stop_strings_(request.params.stop),
      stop_ids_(request.params.stop_token_ids) {}

void Choice::emit(const std::string& text) {
  unsent_ += text;
  num_characters_ += count_characters(text);
}

void Choice::set_prompt_logprobs(const std::vector<std::int32_t>& prompt,
                                 std::vector<std::vector<kernels::TokenLogprob>> logprobs) {
  if (echo_ && wants_logprobs_) {
    runtime::StreamDecoder text(*tokenizer_);
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      Entry entry{{{0.0f, prompt[i]}}, offset, i > 0};
      if (i > 0) {
        const auto& all = logprobs[i - 1];
        const auto count = std::min(all.size(), static_cast<std::size_t>(num_logprobs_) + 1);
        entry.logprobs.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
      }
      entries_.push_back(std::move(entry));
      offset += count_characters(text.push(prompt[i]));
    }
  }
  prompt_logprobs_ = std::move(logprobs);
}

bool Choice::push(const runtime::TokenEvent& event) {
  if (finished()) return false;
  if (prompt_only_) {
    prompt_done_ = true;
    return false;
  }
  if (event.token >= 0 && wants_logprobs_) entries_.push_back({event.logprobs, num_characters_});
  emit(output_.push(event));
  return output_.stopped_by_string() && event.finish == runtime::FinishReason::kNone;
}

const char* Choice::finish_reason() const {
  return runtime::name(prompt_done_ ? runtime::FinishReason::kLength : output_.finish_reason());
}

json::value Choice::stop_reason() const {
  if (const auto matched = output_.matched_stop()) return json::value(stop_strings_[*matched]);
  if (output_.finish_reason() != runtime::FinishReason::kStop || output_.token_ids().empty())
    return nullptr;
  const std::int32_t last = output_.token_ids().back();
  const bool named = std::find(stop_ids_.begin(), stop_ids_.end(), last) != stop_ids_.end();
  return named ? json::value(last) : json::value(nullptr);
}

std::string Choice::take_text() { return std::exchange(unsent_, {}); }

json::value Choice::take_logprobs() {
  if (!wants_logprobs_) return nullptr;
  json::value result = chat_ ? chat_logprobs() : completion_logprobs();
  entries_.clear();
  return result;
}

json::value Choice::take_token_ids() {
  if (!wants_token_ids_) return nullptr;
  const std::vector<std::int32_t>& ids = output_.token_ids();
  json::array fresh(ids.begin() + static_cast<std::ptrdiff_t>(sent_ids_), ids.end());
  sent_ids_ = ids.size();
  return fresh;
}

std::string Choice::token_text(std::int32_t id) const {
  return tokens_as_ids_ ? "token_id:" + std::to_string(id) : tokenizer_->decode({id}, false);
}

json::object Choice::chat_entry(const kernels::TokenLogprob& logprob) const {
  json::array bytes;
  if (tokenizer_ != nullptr) {
    for (const char byte : tokenizer_->token_bytes(logprob.id)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
  }
  return {
      {"token", token_text(logprob.id)}, {"logprob", finite(logprob.logprob)}, {"bytes", bytes}};
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

json::value Choice::prompt_logprobs() const {
  if (!num_prompt_logprobs_) return nullptr;
  const auto count = static_cast<std::size_t>(*num_prompt_logprobs_);
  json::array result;
  result.push_back(nullptr);
  for (const auto& logprobs : prompt_logprobs_) {
    json::object tokens;
    // The token itself first; its rank is known when it is among the largest.
    for (std::size_t i = 0; i < logprobs.size() && i <= count; ++i) {
      json::object& item = tokens[std::to_string(logprobs[i].id)].emplace_object();
      item["logprob"] = finite(logprobs[i].logprob);
      item["rank"] = i > 0 ? json::value(i) : json::value(nullptr);
      if (tokenizer_ != nullptr)
        item["decoded_token"] = tokenizer_->decode({logprobs[i].id}, false);
    }
    result.push_back(std::move(tokens));
  }
  return result;
}

json::value Choice::completion_logprobs() const {
  json::array tokens, logprobs, top, offsets;
  for (const Entry& entry : entries_) {
    tokens.push_back(json::value(token_text(entry.logprobs[0].id)));
    offsets.push_back(entry.text_offset);
    if (!entry.scored) {
      logprobs.push_back(nullptr);
      top.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite(entry.logprobs[0].logprob));
    json::object best;
    for (const auto& alternative : entry.logprobs) {
      best[token_text(alternative.id)] = finite(alternative.logprob);
    }
    top.push_back(std::move(best));
  }
  return json::object{{"tokens", std::move(tokens)},
                      {"token_logprobs", std::move(logprobs)},
                      {"top_logprobs", std::move(top)},
                      {"text_offset", std::move(offsets)}};
}

}  // namespace tandem::launch
