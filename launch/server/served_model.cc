// SPDX-License-Identifier: Apache-2.0
#include "launch/server/served_model.h"

#include <algorithm>
#include <random>

#include "kernels/device/error.h"
#include "launch/bad_words.h"
#include "launch/server/api_error.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

const runtime::Tokenizer& ServedModel::text(const char* field) const {
  if (tokenizer) return *tokenizer;
  throw ApiError(400,
                 concat("This server has no tokenizer, so `", field,
                        "` cannot be text; send token ids to /v1/completions."),
                 field);
}

std::vector<std::int32_t> ServedModel::tokens(const Prompt& prompt, bool add_special_tokens) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return this->text("prompt").encode(*text, {add_special_tokens, true});
  }
  const auto& ids = std::get<std::vector<std::int32_t>>(prompt);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      throw ApiError(
          400, concat("Token ", id, " is not one of the model's (0 to ", vocab_size - 1, ")."),
          "prompt");
    }
  }
  return ids;
}

std::vector<std::int32_t> ServedModel::chat_tokens(const json::array& messages,
                                                   const json::object& variables) const {
  const runtime::Tokenizer& encoder = text("messages");
  if (!chat_template) {
    throw ApiError(400, "The model has no chat template; use /v1/completions.", "messages");
  }
  json::object all = variables;
  all["messages"] = messages;
  all["bos_token"] = bos_token;
  all["eos_token"] = eos_token;
  return encoder.encode(chat_template->render(all), {false, true});
}

std::vector<std::vector<std::int32_t>> ServedModel::bad_word_tokens(
    const std::vector<std::string>& words) const {
  std::vector<std::vector<std::int32_t>> result;
  for (const std::string& word : words) {
    if (word.empty()) throw ApiError(400, "A word in `bad_words` is empty.", "bad_words");
    for (auto& ids : word_tokens(text("bad_words"), word)) result.push_back(std::move(ids));
  }
  return result;
}

void ServedModel::fit(runtime::Request& request, const CompletionRequest& from) const {
  const auto prompt = static_cast<std::int32_t>(request.prompt.size());
  if (prompt == 0) throw ApiError(400, "The prompt has no token.", "prompt");
  const std::int32_t room = max_model_len - prompt;
  const std::int32_t wanted = from.max_tokens.value_or(from.chat ? std::max(room, 1) : 16);
  if (room < 1 || (from.max_tokens && wanted > room)) {
    const std::string asked =
        from.max_tokens ? concat(" and ", wanted, " more were asked for") : std::string();
    throw ApiError(400,
                   concat("This model's maximum context length is ", max_model_len,
                          " tokens, but the prompt has ", prompt, asked,
                          "; shorten the prompt or lower max_tokens."),
                   from.chat ? "messages" : "prompt");
  }
  request.params.max_tokens = std::min(wanted, room);
  request.params.validate(vocab_size);
}

std::vector<runtime::Request> ServedModel::token_requests(CompletionRequest& request) const {
  request.params.seed = request.seed ? *request.seed : random_seed();
  if (!request.params.stop.empty()) text("stop");
  if (request.echo) text("echo");
  request.params.bad_words = bad_word_tokens(request.bad_words);
  std::vector<runtime::Request> result;
  const auto add = [&](std::vector<std::int32_t> prompt) {
    runtime::Request one;
    one.prompt = std::move(prompt);
    one.params = request.params;
    fit(one, request);
    result.push_back(std::move(one));
  };
  if (request.chat) {
    add(chat_tokens(request.messages, request.template_variables));
  } else {
    for (const Prompt& prompt : request.prompts) add(tokens(prompt, request.add_special_tokens));
  }
  return result;
}

}  // namespace tandem::launch
