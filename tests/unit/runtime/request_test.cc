// SPDX-License-Identifier: Apache-2.0
#include "runtime/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

template <typename Change>
std::string refusal(Change change) {
  SamplingParams params;
  change(params);
  try {
    params.validate(100);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(SamplingParams, DefaultsAndLimitsAreAccepted) {
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& p) {
              p.temperature = 100.0f, p.top_k = -1, p.min_p = 1.0f, p.n = 128, p.logprobs = 20;
              p.presence_penalty = -2.0f, p.frequency_penalty = 2.0f, p.min_tokens = p.max_tokens;
              p.logit_bias = {{99, -100.0f}}, p.stop_token_ids = {0, 99};
            }),
            "");
}

TEST(SamplingParams, EachWrongValueIsNamed) {
  const float nan = std::nanf("");
  const auto names = [](const std::string& text, const std::string& name) {
    return text.rfind(name, 0) == 0;
  };
  EXPECT_TRUE(names(refusal([](auto& p) { p.temperature = -0.1f; }), "temperature"));
  EXPECT_TRUE(names(refusal([&](auto& p) { p.temperature = nan; }), "temperature"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.top_p = 0.0f; }), "top_p"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.top_p = 1.01f; }), "top_p"));
  EXPECT_TRUE(names(refusal([&](auto& p) { p.top_p = nan; }), "top_p"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.min_p = 2.0f; }), "min_p"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.typical_p = 0.0f; }), "typical_p"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.top_k = -2; }), "top_k"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.repetition_penalty = 0.0f; }), "repetition_penalty"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.presence_penalty = 2.1f; }), "presence_penalty"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.frequency_penalty = -3.f; }), "frequency_penalty"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.no_repeat_ngram = -1; }), "no_repeat_ngram"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.max_tokens = 0; }), "max_tokens"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.min_tokens = 17; }), "min_tokens"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.n = 0; }), "n is"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.n = 129; }), "n is"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.stop_token_ids = {100}; }), "stop_token_ids"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.stop = {""}; }), "stop has"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.logit_bias = {{-1, 0.f}}; }), "logit_bias"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.logit_bias = {{1, 101.f}}; }), "logit_bias"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.allowed_token_ids = {100}; }), "allowed_token_ids"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.bad_words = {{}}; }), "bad_words has"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.logprobs = 21; }), "logprobs"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.prompt_logprobs = -1; }), "prompt_logprobs"));
}

}  // namespace
}  // namespace tandem::runtime
