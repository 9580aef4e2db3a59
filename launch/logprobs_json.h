// SPDX-License-Identifier: Apache-2.0
// Log-probabilities as `generate --json` shows them.
#pragma once

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <vector>

#include "kernels/sample.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

/// The token that was taken, with the likeliest in `top`. JSON has no infinity: what can never come
/// has -9999, as in vLLM.
inline boost::json::object logprobs_json(const runtime::Tokenizer& tokenizer,
                                         const std::vector<kernels::TokenLogprob>& logprobs) {
  const auto item = [&](const kernels::TokenLogprob& entry) -> boost::json::object {
    return {{"token_id", entry.id},
            {"token", tokenizer.decode({entry.id}, false)},
            {"logprob", std::max(entry.logprob, -9999.0f)}};
  };
  boost::json::object result = item(logprobs.front());
  boost::json::array top;
  for (std::size_t i = 1; i < logprobs.size(); ++i) top.push_back(item(logprobs[i]));
  result["top"] = std::move(top);
  return result;
}

}  // namespace tandem::launch
