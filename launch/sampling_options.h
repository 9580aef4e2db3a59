// SPDX-License-Identifier: Apache-2.0
// The sampling flags of `generate` and `chat`, with the model's generation_config.json as default.
#pragma once

#include <boost/program_options.hpp>

#include "runtime/model_config.h"
#include "runtime/request.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

class SamplingOptions {
 public:
  explicit SamplingOptions(std::int32_t max_tokens) { params_.max_tokens = max_tokens; }
  void add_to(boost::program_options::options_description& options);

  /// The flags given, over the model's defaults, over greedy. ConfigError for a value out of range.
  runtime::SamplingParams params(const boost::program_options::variables_map& values,
                                 const runtime::ModelConfig& model) const;
  /// Words that must not be generated; they become `params.bad_words` where there is a tokenizer.
  void ban_words(const runtime::Tokenizer& tokenizer, runtime::SamplingParams& params) const;

 private:
  runtime::SamplingParams params_;
  std::vector<std::string> logit_bias_, bad_words_;
};

}  // namespace tandem::launch
