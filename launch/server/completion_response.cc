// SPDX-License-Identifier: Apache-2.0
#include "launch/server/completion_response.h"

#include <atomic>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <random>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

std::string random_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string id;
  for (int word = 0; word < 4; ++word) {
    auto bits = device();
    for (int i = 0; i < 8; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

json::value finish_reason(const Choice& choice) {
  return choice.finished() ? json::value(choice.finish_reason()) : json::value(nullptr);
}

void add_token_ids(Choice& choice, json::object& item) {
  json::value ids = choice.take_token_ids();
  if (!ids.is_null()) item["token_ids"] = std::move(ids);
}

json::object usage_object(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

std::string server_sent(const json::object& object) {
  return "data: " + json::serialize(object) + "\n\n";
}

}  // namespace

CompletionWriter::CompletionWriter(bool chat, std::string model)
    : chat_(chat),
      id_((chat ? "chatcmpl-" : "cmpl-") + random_id()),
      model_(std::move(model)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

json::object CompletionWriter::head(bool chunk) const {
  const char* kind = !chat_  ? "text_completion"
                     : chunk ? "chat.completion.chunk"
                             : "chat.completion";
  return {{"id", id_}, {"object", kind}, {"created", created_}, {"model", model_}};
}

std::string CompletionWriter::whole(std::vector<Choice>& choices, const Usage& usage) const {
  json::array list;
  for (Choice& choice : choices) {
    json::object item{{"index", choice.index()}};
    std::string text = choice.take_text();
    if (chat_) {
      item["message"] = json::object{{"role", "assistant"}, {"content", std::move(text)}};
    } else {
      item["text"] = std::move(text);
    }
    item["logprobs"] = choice.take_logprobs();
    item["finish_reason"] = finish_reason(choice);
    item["stop_reason"] = choice.stop_reason();
    add_token_ids(choice, item);
    if (!chat_) item["prompt_logprobs"] = choice.prompt_logprobs();
    list.push_back(std::move(item));
  }
  json::object answer = head(false);
  answer["choices"] = std::move(list);
  if (chat_) answer["prompt_logprobs"] = choices.front().prompt_logprobs();
  answer["usage"] = usage_object(usage);
  return json::serialize(answer);
}

std::string CompletionWriter::piece(json::object choice) const {
  json::object answer = head(true);
  answer["choices"] = json::array{std::move(choice)};
  return server_sent(answer);
}

std::string CompletionWriter::role_event(int index) const {
  return piece({{"index", index},
                {"delta", json::object{{"role", "assistant"}, {"content", ""}}},
                {"logprobs", nullptr},
                {"finish_reason", nullptr}});
}

std::string CompletionWriter::event(Choice& choice) const {
  json::object item{{"index", choice.index()}};
  std::string text = choice.take_text();
  if (chat_) {
    item["delta"] = text.empty() ? json::object() : json::object{{"content", std::move(text)}};
  } else {
    item["text"] = std::move(text);
  }
  item["logprobs"] = choice.take_logprobs();
  item["finish_reason"] = finish_reason(choice);
  add_token_ids(choice, item);
  if (choice.finished()) {
    item["stop_reason"] = choice.stop_reason();
    choice.end_sent();
  }
  return piece(std::move(item));
}

std::string CompletionWriter::usage_event(const Usage& usage) const {
  json::object answer = head(true);
  answer["choices"] = json::array();
  answer["usage"] = usage_object(usage);
  return server_sent(answer);
}

}  // namespace tandem::launch
