// SPDX-License-Identifier: Apache-2.0
#include "launch/sampling_options.h"

#include <algorithm>
#include <charconv>

#include "kernels/device/error.h"
#include "launch/bad_words.h"

namespace tandem::launch {
namespace po = boost::program_options;

void SamplingOptions::add_to(po::options_description& options) {
  po::options_description sampling("Sampling");
  runtime::SamplingParams& p = params_;
  sampling.add_options()
      ("max-tokens", po::value(&p.max_tokens)->default_value(p.max_tokens), "new tokens at most")
      ("min-tokens", po::value(&p.min_tokens)->default_value(0), "no stop before this many")
      ("temperature", po::value(&p.temperature), "0 is greedy; default: the model's")
      ("top-k", po::value(&p.top_k), "sample from the k most likely; 0 is all")
      ("top-p", po::value(&p.top_p), "sample from the most likely that reach this probability")
      ("min-p", po::value(&p.min_p), "drop tokens below this share of the best one")
      ("typical-p", po::value(&p.typical_p), "locally typical sampling")
      ("repetition-penalty", po::value(&p.repetition_penalty), "above 1 discourages tokens seen before")
      ("presence-penalty", po::value(&p.presence_penalty), "subtracted once a token was generated")
      ("frequency-penalty", po::value(&p.frequency_penalty), "subtracted per time a token was generated")
      ("no-repeat-ngram", po::value(&p.no_repeat_ngram), "no n tokens in a row twice")
      ("seed", po::value(&p.seed)->default_value(0), "same seed, same text, at any number of ranks")
      ("n", po::value(&p.n)->default_value(1), "answers per prompt")
      ("stop", po::value(&p.stop), "text that ends the answer; may be given several times")
      ("stop-token-id", po::value(&p.stop_token_ids), "token that ends the answer; may be given several times")
      ("include-stop-str", po::bool_switch(&p.include_stop_str), "keep the stop text in the answer")
      ("logit-bias", po::value(&logit_bias_), "TOKEN_ID=VALUE, added to the token's logit; may be given several times")
      ("allowed-token-id", po::value(&p.allowed_token_ids), "only these tokens may come; may be given several times")
      ("bad-word", po::value(&bad_words_), "text that must not come; may be given several times")
      ("ignore-eos", po::bool_switch(&p.ignore_eos), "go on after the model's end-of-text tokens");
  options.add(sampling);
}

namespace {

std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  std::int32_t id = 0;
  float value = 0;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, id);
  const bool equals = number.ec == std::errc() && number.ptr != end && *number.ptr == '=';
  const auto added = equals ? std::from_chars(number.ptr + 1, end, value) : number;
  TANDEM_REQUIRE(equals && added.ec == std::errc() && added.ptr == end, "--logit-bias ", text,
                 " is not of the form TOKEN_ID=VALUE; write for example --logit-bias 42=-5");
  return {id, value};
}

/// "top_p is 2; ..." -> "--top-p is 2; ...": a fault of the parameters as one of the flags.
std::string with_flag(std::string text, const po::variables_map& values) {
  std::string flag = text.substr(0, text.find(' '));
  std::replace(flag.begin(), flag.end(), '_', '-');
  for (const std::string& known : {flag, flag.substr(0, flag.size() - 1)})
    if (values.count(known) > 0) return "--" + known + text.substr(flag.size());
  return text;
}

}  // namespace

runtime::SamplingParams SamplingOptions::params(const po::variables_map& values,
                                                const runtime::ModelConfig& model) const {
  runtime::SamplingParams params = params_;
  for (const std::string& text : logit_bias_) params.logit_bias.push_back(parse_bias(text));
  const auto defaults_to = [&](const char* flag, auto& value, const auto& model_default) {
    if (values.count(flag) == 0 && model_default) value = *model_default;
  };
  defaults_to("temperature", params.temperature, model.default_temperature);
  defaults_to("top-k", params.top_k, model.default_top_k);
  defaults_to("top-p", params.top_p, model.default_top_p);
  defaults_to("min-p", params.min_p, model.default_min_p);
  defaults_to("repetition-penalty", params.repetition_penalty, model.default_repetition_penalty);
  try {
    params.validate(static_cast<std::int32_t>(model.vocab_size));
  } catch (const ConfigError& error) {
    throw ConfigError(with_flag(error.what(), values));
  }
  return params;
}

void SamplingOptions::ban_words(const runtime::Tokenizer& tokenizer,
                                runtime::SamplingParams& params) const {
  for (const std::string& word : bad_words_) {
    TANDEM_REQUIRE(!word.empty(), "a --bad-word is empty; give it some text or leave it out");
    for (auto& ids : word_tokens(tokenizer, word)) params.bad_words.push_back(std::move(ids));
  }
}

}  // namespace tandem::launch
