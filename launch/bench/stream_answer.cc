// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/stream_answer.h"

#include <boost/json.hpp>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

/// Tokens of one event; 0 when it has none.
std::int64_t tokens_of(const json::object& choice) {
  if (const json::value* ids = choice.if_contains("token_ids"); ids != nullptr && ids->is_array())
    return static_cast<std::int64_t>(ids->get_array().size());
  const json::value* text = choice.if_contains("text");
  const json::value* delta = choice.if_contains("delta");
  if (delta != nullptr && delta->is_object()) {
    text = delta->get_object().if_contains("content");
    // What a reasoning model thinks are tokens too.
    if (text == nullptr || text->is_null())
      text = delta->get_object().if_contains("reasoning_content");
  }
  return text != nullptr && text->is_string() && !text->get_string().empty() ? 1 : 0;
}

std::int64_t number(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

}  // namespace

void StreamAnswer::take(const std::string& data, double now_s) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  boost::system::error_code wrong;
  const json::value event = json::parse(data, wrong);
  if (wrong || !event.is_object()) {
    record_.error = "an event that is no JSON object: " + data.substr(0, 100);
    return;
  }
  const json::object& object = event.get_object();
  if (object.contains("error")) {
    record_.error = error_text(200, data);
    return;
  }
  const json::value* choices = object.if_contains("choices");
  if (choices != nullptr && choices->is_array() && !choices->get_array().empty() &&
      choices->get_array()[0].is_object()) {
    const std::int64_t tokens = tokens_of(choices->get_array()[0].get_object());
    if (tokens > 0) record_.pieces.push_back({now_s, tokens});
    if (tokens > 0 && !has_usage_) record_.output_tokens += tokens;
  }
  const json::value* usage = object.if_contains("usage");
  if (usage == nullptr || !usage->is_object()) return;
  has_usage_ = true;
  record_.prompt_tokens = number(usage->get_object(), "prompt_tokens");
  record_.output_tokens = number(usage->get_object(), "completion_tokens");
}

void StreamAnswer::finish() {
  if (!record_.error.empty()) return;
  if (!done_)
    record_.error = "the answer broke off";
  else if (record_.pieces.empty())
    record_.error = "an answer without a token";
}

std::string error_text(int status, const std::string& body) {
  boost::system::error_code wrong;
  const json::value value = json::parse(body, wrong);
  std::string message = body.substr(0, 200);
  if (!wrong && value.is_object()) {
    const json::value* error = value.get_object().if_contains("error");
    if (error != nullptr && error->is_object()) error = error->get_object().if_contains("message");
    if (error == nullptr) error = value.get_object().if_contains("message");
    if (error != nullptr && error->is_string()) message = std::string(error->get_string());
  }
  return concat("HTTP ", status, ": ", message);
}

}  // namespace tandem::launch
