// SPDX-License-Identifier: Apache-2.0
#include "launch/server/completion_request.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <charconv>

#include "launch/server/api_error.h"
#include "launch/server/json_body.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxStops = 16, kMaxPrompts = 4096;

/// Fields of OpenAI's interface, vLLM's and other servers' that would change the answer, or who may
/// see it, and that nothing here honours.
constexpr const char* kUnsupported[] = {"tools",
                                        "functions",
                                        "function_call",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "structured_outputs",
                                        "audio",
                                        "prediction",
                                        "web_search_options",
                                        "reasoning_effort",
                                        "suffix",
                                        "use_beam_search",
                                        "length_penalty",
                                        "documents",
                                        "chat_template",
                                        "logits_processors",
                                        "truncate_prompt_tokens",
                                        "continue_final_message",
                                        "best_of",
                                        "thinking_token_budget",
                                        "thinking",
                                        "enable_thinking",
                                        "verbosity",
                                        "cache_salt",
                                        "vllm_xargs",
                                        "mm_processor_kwargs",
                                        "grammar",
                                        "json_schema",
                                        "regex",
                                        "ebnf",
                                        "top_a",
                                        "tfs_z",
                                        "mirostat",
                                        "dry_multiplier",
                                        "xtc_probability",
                                        "dynatemp_range"};

/// Values that mean "nothing special" are as good as no field.
bool harmless(const std::string& field, const json::value& value, const json::object& body) {
  if (value.is_bool()) return !value.get_bool();
  if (value.is_array()) return value.get_array().empty();
  if (value.is_string() && value.get_string().empty()) return true;
  if (field == "best_of") return body.contains("n") ? value == body.at("n") : value == 1;
  if (field == "length_penalty") return value.is_number() && value.to_number<double>() == 1.0;
  if (field == "function_call") return value == "none" || value == "auto";
  if (field == "tfs_z") return value.is_number() && value.to_number<double>() == 1.0;
  return value.is_number() && value.to_number<double>() == 0.0;
}

void refuse_unsupported(const json::object& body) {
  const JsonBody fields(body);
  for (const char* field : kUnsupported) {
    const json::value* value = fields.find(field);
    if (value == nullptr || harmless(field, *value, body)) continue;
    throw ApiError(400, std::string("`") + field + "` is not supported; leave it out.", field);
  }
  if (const json::value* choice = fields.find("tool_choice")) {
    if (*choice != "none" && *choice != "auto") {
      throw ApiError(400, "`tool_choice` is not supported; leave it out.", "tool_choice");
    }
  }
  if (const json::object* format = fields.object("response_format")) {
    const json::value* type = format->if_contains("type");
    if (type == nullptr || *type != "text") {
      throw ApiError(400, "`response_format` other than text is not supported; leave it out.",
                     "response_format");
    }
  }
  if (const json::array* modalities = fields.list("modalities")) {
    if (modalities->size() != 1 || modalities->at(0) != "text") {
      throw ApiError(400, "`modalities` other than text are not supported; leave it out.",
                     "modalities");
    }
  }
}

std::vector<std::string> parse_texts(const JsonBody& fields, const char* field) {
  const json::value* value = fields.find(field);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (value->is_string()) return {std::string(value->get_string())};
  if (!value->is_array()) JsonBody::wrong(field, "a string or a list of strings");
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) JsonBody::wrong(field, "a string or a list of strings");
    texts.emplace_back(item.get_string());
  }
  return texts;
}

std::vector<std::pair<std::int32_t, float>> parse_bias(const JsonBody& fields) {
  std::vector<std::pair<std::int32_t, float>> bias;
  const json::object* object = fields.object("logit_bias");
  if (object == nullptr) return bias;
  for (const auto& item : *object) {
    const std::string_view key = item.key();
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || !item.value().is_number()) {
      JsonBody::wrong("logit_bias", "an object of token ids and numbers");
    }
    bias.emplace_back(id, static_cast<float>(item.value().to_number<double>()));
  }
  return bias;
}

std::vector<Prompt> parse_prompts(const JsonBody& fields) {
  constexpr const char* kExpected = "a string, a list of strings, token ids or a list of these";
  const json::value* value = fields.find("prompt");
  if (value == nullptr) throw ApiError(400, "`prompt` is missing.", "prompt");
  if (value->is_string()) return {std::string(value->get_string())};
  if (!value->is_array()) JsonBody::wrong("prompt", kExpected);
  const json::array& list = value->get_array();
  if (list.empty()) JsonBody::wrong("prompt", kExpected);
  if (list[0].is_number()) return {parse_token_ids(list, "prompt")};
  if (list.size() > kMaxPrompts) {
    JsonBody::wrong("prompt", "a list of at most " + std::to_string(kMaxPrompts));
  }
  std::vector<Prompt> prompts;
  for (const json::value& item : list) {
    if (item.is_string()) {
      prompts.emplace_back(std::string(item.get_string()));
    } else if (item.is_array()) {
      prompts.emplace_back(parse_token_ids(item.get_array(), "prompt"));
    } else {
      JsonBody::wrong("prompt", kExpected);
    }
  }
  return prompts;
}

/// A message's content as one string; text parts are joined by line ends, as vLLM does.
json::value flat_content(const json::value& content) {
  if (content.is_string() || content.is_null()) return content;
  constexpr const char* kExpected = "a string or a list of text parts";
  if (!content.is_array()) JsonBody::wrong("messages", "messages whose content is a string");
  std::string text;
  for (const json::value& part : content.get_array()) {
    if (!part.is_object()) JsonBody::wrong("content", kExpected);
    const JsonBody fields(part.get_object());
    if (fields.text("type") != "text" || !fields.text("text")) {
      throw ApiError(400, "Only text can be read; content parts of other types are not supported.",
                     "messages");
    }
    if (!text.empty()) text += '\n';
    text += *fields.text("text");
  }
  return json::value(text);
}

void read_sampling(const JsonBody& fields, runtime::SamplingParams& p) {
  const auto number = [&](const char* field, float& value) {
    value = fields.number(field).value_or(value);
  };
  const auto integer = [&](const char* field, std::int32_t& value) {
    value = static_cast<std::int32_t>(fields.integer(field, -1, kMaxInt).value_or(value));
  };
  number("temperature", p.temperature);
  number("top_p", p.top_p);
  number("min_p", p.min_p);
  number("typical_p", p.typical_p);
  number("repetition_penalty", p.repetition_penalty);
  number("presence_penalty", p.presence_penalty);
  number("frequency_penalty", p.frequency_penalty);
  integer("top_k", p.top_k);
  integer("no_repeat_ngram_size", p.no_repeat_ngram);
  integer("min_tokens", p.min_tokens);
  integer("n", p.n);
  p.ignore_eos = fields.flag("ignore_eos").value_or(false);
  p.include_stop_str = fields.flag("include_stop_str_in_output").value_or(false);
  p.stop = parse_texts(fields, "stop");
  if (p.stop.size() > kMaxStops) {
    JsonBody::wrong("stop", "a list of at most " + std::to_string(kMaxStops));
  }
  if (const auto* ids = fields.list("stop_token_ids")) {
    p.stop_token_ids = parse_token_ids(*ids, "stop_token_ids");
  }
  if (const auto* ids = fields.list("allowed_token_ids")) {
    p.allowed_token_ids = parse_token_ids(*ids, "allowed_token_ids");
  }
  p.logit_bias = parse_bias(fields);
}

void read_logprobs(const JsonBody& fields, bool chat, runtime::SamplingParams& p) {
  constexpr std::int64_t kMost = kernels::kMaxLogprobs;
  if (!chat) {
    if (const auto count = fields.integer("logprobs", 0, kMost)) {
      p.logprobs = static_cast<std::int32_t>(*count);
    }
    return;
  }
  const auto top = fields.integer("top_logprobs", 0, kMost);
  if (fields.flag("logprobs").value_or(false)) {
    p.logprobs = static_cast<std::int32_t>(top.value_or(0));
  } else if (top.value_or(0) > 0) {
    throw ApiError(400, "`top_logprobs` needs `logprobs` to be true.", "top_logprobs");
  }
}

/// vLLM's field; and `echo` with `logprobs` means those of the prompt too.
void read_prompt_logprobs(const JsonBody& fields, CompletionRequest& request) {
  runtime::SamplingParams& p = request.params;
  if (const auto count = fields.integer("prompt_logprobs", 0, kernels::kMaxLogprobs)) {
    if (request.stream) {
      throw ApiError(400, "`prompt_logprobs` cannot be streamed; leave `stream` out.",
                     "prompt_logprobs");
    }
    request.prompt_logprobs = p.prompt_logprobs = static_cast<std::int32_t>(*count);
  }
  if (request.echo && p.logprobs) {
    p.prompt_logprobs = std::max(p.prompt_logprobs.value_or(0), *p.logprobs);
  }
}

void read_stream(const JsonBody& fields, CompletionRequest& request) {
  request.stream = fields.flag("stream").value_or(false);
  if (const auto* options = fields.object("stream_options")) {
    if (!request.stream) {
      throw ApiError(400, "`stream_options` needs `stream` to be true.", "stream_options");
    }
    request.include_usage = JsonBody(*options).flag("include_usage").value_or(false);
  }
}

}  // namespace

std::vector<std::int32_t> parse_token_ids(const json::array& list, const char* field) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const json::value& item : list) {
    boost::system::error_code error;
    const auto id = item.to_number<std::int32_t>(error);
    if (error || item.is_double()) JsonBody::wrong(field, "a list of token ids");
    ids.push_back(id);
  }
  return ids;
}

runtime::SamplingParams default_sampling(const runtime::ModelConfig& config) {
  runtime::SamplingParams params;
  params.temperature = config.default_temperature.value_or(1.0f);
  params.top_p = config.default_top_p.value_or(1.0f);
  params.top_k = config.default_top_k.value_or(0);
  params.min_p = config.default_min_p.value_or(0.0f);
  params.repetition_penalty = config.default_repetition_penalty.value_or(1.0f);
  return params;
}

json::object parse_body(std::string_view body) {
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(body.data(), body.size()), error);
  if (error) throw ApiError(400, "The body is not valid JSON (" + error.message() + ").");
  if (!value.is_object()) throw ApiError(400, "The body must be a JSON object.");
  return std::move(value.get_object());
}

json::array parse_messages(const json::object& body) {
  const auto* messages = JsonBody(body).list("messages");
  if (messages == nullptr) throw ApiError(400, "`messages` is missing.", "messages");
  if (messages->empty()) JsonBody::wrong("messages", "a list of at least one message");
  json::array result;
  for (const json::value& message : *messages) {
    if (!message.is_object() || !JsonBody(message.get_object()).text("role")) {
      JsonBody::wrong("messages", "a list of objects with a role");
    }
    json::object copy = message.get_object();
    const json::value* content = copy.if_contains("content");
    if ((content == nullptr || content->is_null()) && copy.at("role") != "assistant") {
      JsonBody::wrong("messages", "messages with content");
    }
    copy["content"] = content == nullptr ? json::value("") : flat_content(*content);
    result.push_back(std::move(copy));
  }
  return result;
}

CompletionRequest parse_completion_request(const json::object& body, bool chat,
                                           const runtime::SamplingParams& defaults) {
  refuse_unsupported(body);
  const JsonBody fields(body);
  CompletionRequest request;
  request.chat = chat;
  request.model = fields.text("model").value_or("");
  request.params = defaults;
  read_sampling(fields, request.params);
  read_logprobs(fields, chat, request.params);
  read_stream(fields, request);
  if (chat) {
    if (fields.flag("echo").value_or(false)) {
      throw ApiError(400, "`echo` is for /v1/completions; leave it out.", "echo");
    }
    request.messages = parse_messages(body);
    request.template_variables["add_generation_prompt"] =
        fields.flag("add_generation_prompt").value_or(true);
    if (const auto* variables = fields.object("chat_template_kwargs")) {
      for (const auto& item : *variables) request.template_variables[item.key()] = item.value();
    }
  } else {
    request.prompts = parse_prompts(fields);
    request.echo = fields.flag("echo").value_or(false);
  }
  read_prompt_logprobs(fields, request);
  // Nothing but the prompt, which needs a step all the same.
  request.prompt_only = request.echo && fields.integer("max_tokens") == 0;
  const auto limit = request.prompt_only ? 1 : fields.integer("max_tokens", 1, kMaxInt);
  const auto new_limit = fields.integer("max_completion_tokens", 1, kMaxInt);
  if (limit || new_limit)
    request.max_tokens = static_cast<std::int32_t>(new_limit ? *new_limit : *limit);
  if (const auto seed = fields.integer("seed")) request.seed = static_cast<std::uint64_t>(*seed);
  request.bad_words = parse_texts(fields, "bad_words");
  request.add_special_tokens = fields.flag("add_special_tokens").value_or(!chat);
  request.tokens_as_ids = fields.flag("return_tokens_as_token_ids").value_or(false);
  request.return_token_ids = fields.flag("return_token_ids").value_or(false);
  request.skip_special_tokens = fields.flag("skip_special_tokens").value_or(true);
  return request;
}

}  // namespace tandem::launch
