// SPDX-License-Identifier: Apache-2.0
#include "launch/server/completion_request.h"

#include <gtest/gtest.h>

#include "launch/server/api_error.h"

namespace tandem::launch {
namespace {

CompletionRequest chat(const std::string& more) {
  runtime::SamplingParams defaults;
  defaults.temperature = 0.6f;
  defaults.top_k = 50;
  return parse_completion_request(
      parse_body(R"({"messages":[{"role":"user","content":"hi"}])" + more + "}"), true, defaults);
}

CompletionRequest completion(const std::string& fields) {
  return parse_completion_request(parse_body("{" + fields + "}"), false, {});
}

/// "status param" of the refusal, "" when accepted.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const ApiError& error) {
    const auto body = parse_body(error.response().body).at("error").as_object();
    EXPECT_EQ(body.at("message").as_string(), error.what());
    const auto& param = body.at("param");
    return std::to_string(error.status()) + " " +
           (param.is_null() ? "-" : std::string(param.as_string()));
  }
  return "";
}

TEST(CompletionRequest, ChatDefaultsComeFromTheModel) {
  const CompletionRequest request = chat("");
  EXPECT_TRUE(request.chat);
  EXPECT_FLOAT_EQ(request.params.temperature, 0.6f);
  EXPECT_EQ(request.params.top_k, 50);
  EXPECT_EQ(request.params.n, 1);
  EXPECT_FALSE(request.max_tokens || request.seed || request.params.logprobs);
  EXPECT_FALSE(request.stream || request.add_special_tokens);
  EXPECT_TRUE(request.skip_special_tokens);
  EXPECT_EQ(request.template_variables.at("add_generation_prompt"), true);
}

TEST(CompletionRequest, AllFieldsArrive) {
  const CompletionRequest r = chat(R"(,
      "model": "m", "temperature": 0, "top_p": 0.9, "min_p": 0.1, "top_k": 5, "n": 3,
      "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 0.5, "seed": -1,
      "max_tokens": 7, "max_completion_tokens": 9, "min_tokens": 2, "ignore_eos": true,
      "stop": ["a", "b"], "include_stop_str_in_output": true, "stop_token_ids": [4, 5],
      "logit_bias": {"3": -100, "4": 1.5}, "allowed_token_ids": [3, 4], "bad_words": ["no"],
      "logprobs": true, "top_logprobs": 2, "stream": true,
      "stream_options": {"include_usage": true}, "chat_template_kwargs": {"x": 1},
      "user": "u", "metadata": {}, "tools": [], "tool_choice": "none", "unheard_of": 1,
      "response_format": {"type": "text"}, "reasoning_effort": null)");
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.params.temperature, 0.0f);
  EXPECT_FLOAT_EQ(r.params.top_p, 0.9f);
  EXPECT_FLOAT_EQ(r.params.min_p, 0.1f);
  EXPECT_EQ(r.params.top_k, 5);
  EXPECT_EQ(r.params.n, 3);
  EXPECT_FLOAT_EQ(r.params.repetition_penalty, 1.1f);
  EXPECT_EQ(r.params.presence_penalty, -1.0f);
  EXPECT_EQ(r.params.frequency_penalty, 0.5f);
  EXPECT_EQ(r.seed, ~std::uint64_t{0});
  EXPECT_EQ(r.max_tokens, 9) << "the newer name wins";
  EXPECT_EQ(r.params.min_tokens, 2);
  EXPECT_TRUE(r.params.ignore_eos && r.params.include_stop_str && r.stream && r.include_usage);
  EXPECT_EQ(r.params.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.params.stop_token_ids, (std::vector<std::int32_t>{4, 5}));
  EXPECT_EQ(r.params.allowed_token_ids, (std::vector<std::int32_t>{3, 4}));
  ASSERT_EQ(r.params.logit_bias.size(), 2u);
  EXPECT_EQ(r.params.logit_bias[1], (std::pair<std::int32_t, float>{4, 1.5f}));
  EXPECT_EQ(r.bad_words, (std::vector<std::string>{"no"}));
  EXPECT_EQ(r.params.logprobs, 2);
  EXPECT_EQ(r.template_variables.at("x"), 1);
}

TEST(CompletionRequest, PromptsComeInFourForms) {
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(completion(R"("prompt": "a")").prompts, (std::vector<Prompt>{"a"}));
  EXPECT_EQ(completion(R"("prompt": ["a", "b"])").prompts, (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(completion(R"("prompt": [1, 2])").prompts, (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(completion(R"("prompt": [[1], [2, 3]])").prompts,
            (std::vector<Prompt>{Ids{1}, Ids{2, 3}}));
  EXPECT_EQ(completion(R"("prompt": "a", "logprobs": 3)").params.logprobs, 3);
  for (const char* wrong :
       {"[]", "{}", "1", "[1.5]", "[true]", "[\"a\", 1]", "[1, \"a\"]", "[99999999999]", "null"}) {
    EXPECT_EQ(refusal([&] { completion(std::string("\"prompt\": ") + wrong); }), "400 prompt")
        << wrong;
  }
}

TEST(CompletionRequest, ContentPartsBecomeOneText) {
  const auto messages = parse_messages(parse_body(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":null,"tool_calls":[1]}]})"));
  EXPECT_EQ(messages[0].at("content"), "a\nb");
  EXPECT_TRUE(messages[1].at("content").is_null());
  EXPECT_EQ(messages[1].at("tool_calls").as_array().size(), 1u);
}

TEST(CompletionRequest, WhatWouldChangeTheAnswerIsRefusedByName) {
  EXPECT_EQ(refusal([] { chat(R"(,"tools": [{}])"); }), "400 tools");
  EXPECT_EQ(refusal([] { chat(R"(,"tool_choice": "required")"); }), "400 tool_choice");
  EXPECT_EQ(refusal([] { chat(R"(,"response_format": {"type": "json_object"})"); }),
            "400 response_format");
  EXPECT_EQ(refusal([] { chat(R"(,"guided_json": {})"); }), "400 guided_json");
  EXPECT_EQ(refusal([] { chat(R"(,"modalities": ["audio"])"); }), "400 modalities");
  EXPECT_EQ(refusal([] { completion(R"("prompt": "a", "best_of": 2)"); }), "400 best_of");
  EXPECT_EQ(refusal([] { completion(R"("prompt": "a", "best_of": 1)"); }), "");
  EXPECT_EQ(refusal([] { completion(R"("prompt": "a", "suffix": "b")"); }), "400 suffix");
  EXPECT_EQ(refusal([] { completion(R"("prompt": "a", "suffix": "", "mirostat": 0)"); }), "");
  EXPECT_EQ(refusal([] { completion(R"("prompt": "a", "mirostat": 2)"); }), "400 mirostat");
  EXPECT_EQ(refusal([] { chat(R"(,"echo": true)"); }), "400 echo");
  EXPECT_EQ(refusal([] { chat(R"(,"echo": false)"); }), "");
  EXPECT_EQ(refusal([] { chat(R"(,"cache_salt": "a")"); }), "400 cache_salt");
  EXPECT_EQ(refusal([] { chat(R"(,"thinking": {"type": "enabled"})"); }), "400 thinking");
  EXPECT_EQ(refusal([] {
              parse_messages(
                  parse_body(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"));
            }),
            "400 messages");
}

TEST(CompletionRequest, WrongTypesAndRangesAreNamed) {
  EXPECT_EQ(refusal([] { chat(R"(,"temperature": "hot")"); }), "400 temperature");
  EXPECT_EQ(refusal([] { chat(R"(,"temperature": 1e300)"); }), "400 temperature");
  EXPECT_EQ(refusal([] { chat(R"(,"max_tokens": 0)"); }), "400 max_tokens");
  EXPECT_EQ(refusal([] { chat(R"(,"max_tokens": 1.5)"); }), "400 max_tokens");
  EXPECT_EQ(refusal([] { chat(R"(,"max_tokens": 99999999999)"); }), "400 max_tokens");
  EXPECT_EQ(refusal([] { chat(R"(,"top_logprobs": 2)"); }), "400 top_logprobs");
  EXPECT_EQ(refusal([] { chat(R"(,"logprobs": true, "top_logprobs": 21)"); }), "400 top_logprobs");
  EXPECT_EQ(refusal([] { chat(R"(,"logprobs": 3)"); }), "400 logprobs");
  EXPECT_EQ(refusal([] { chat(R"(,"stream": 1)"); }), "400 stream");
  EXPECT_EQ(refusal([] { chat(R"(,"stream_options": {"include_usage": true})"); }),
            "400 stream_options");
  EXPECT_EQ(refusal([] { chat(R"(,"logit_bias": {"x": 1})"); }), "400 logit_bias");
  EXPECT_EQ(refusal([] { chat(R"(,"logit_bias": {"1": "x"})"); }), "400 logit_bias");
  EXPECT_EQ(refusal([] { chat(R"(,"stop": [1])"); }), "400 stop");
  EXPECT_EQ(refusal([] { chat(R"(,"stop_token_ids": "1")"); }), "400 stop_token_ids");
  EXPECT_EQ(refusal([] { chat(R"(,"messages": [])"); }), "400 messages") << "the last one counts";
  EXPECT_EQ(refusal([] { parse_messages(parse_body(R"({"messages": [{"content": "a"}]})")); }),
            "400 messages");
  for (const char* message : {R"({"role": "user"})", R"({"role": "system", "content": null})"}) {
    const std::string body = std::string(R"({"messages": [)") + message + "]}";
    EXPECT_EQ(refusal([&] { parse_messages(parse_body(body)); }), "400 messages") << message;
  }
  EXPECT_EQ(refusal([] { parse_body("{"); }), "400 -");
  EXPECT_EQ(refusal([] { parse_body("[]"); }), "400 -");
  EXPECT_EQ(refusal([] { parse_body("{\"prompt\": \"\xff\"}"); }), "400 -");
  EXPECT_EQ(refusal([] { parse_body(std::string(100000, '[')); }), "400 -");
}

TEST(CompletionRequest, LogprobsOfThePrompt) {
  const CompletionRequest echoed = completion(R"("prompt": "a", "echo": true, "logprobs": 1)");
  EXPECT_EQ(echoed.params.prompt_logprobs, 1);
  EXPECT_FALSE(echoed.prompt_logprobs);
  EXPECT_FALSE(echoed.prompt_only);
  const CompletionRequest both = completion(
      R"("prompt": "a", "echo": true, "logprobs": 1, "prompt_logprobs": 4, "max_tokens": 0)");
  EXPECT_EQ(both.params.prompt_logprobs, 4);
  EXPECT_EQ(both.prompt_logprobs, 4);
  EXPECT_TRUE(both.prompt_only);
  EXPECT_EQ(both.max_tokens, 1);
  EXPECT_EQ(chat(R"(,"prompt_logprobs": 0)").params.prompt_logprobs, 0);
  EXPECT_EQ(refusal([] { completion(R"("prompt": "a", "max_tokens": 0)"); }), "400 max_tokens");
  EXPECT_EQ(refusal([] { chat(R"(,"prompt_logprobs": 21)"); }), "400 prompt_logprobs");
  EXPECT_EQ(refusal([] { chat(R"(,"prompt_logprobs": 1, "stream": true)"); }),
            "400 prompt_logprobs");
}

}  // namespace
}  // namespace tandem::launch
