// SPDX-License-Identifier: Apache-2.0
// What a server says about itself: any OpenAI-compatible one through /v1/models, Tandem's also
// through /status. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/bench/load_client.h"

namespace tandem::launch {

/// Of /v1/models.
struct ServedFacts {
  std::string model;               ///< Id of the first one.
  std::int32_t max_model_len = 0;  ///< 0: not told.
  std::int64_t vocab_size = 0;     ///< 0: not told.
  bool is_tandem = false;
  bool gives_token_ids = false;  ///< Understands `return_token_ids`.
};
/// ConfigError when nothing answers.
ServedFacts served_facts(const ServerAddress& server);

/// Of Tandem's /status.
struct ServedCounts {
  std::int64_t ranks = 0, steps = 0, prefill_tokens = 0, prefix_queries = 0, prefix_hits = 0;
  std::int64_t preemptions = 0;
  std::int64_t unfinished = 0;  ///< Requests that run or wait now.
  std::string device;
};
std::optional<ServedCounts> served_counts(const ServerAddress& server, const ServedFacts& facts);

}  // namespace tandem::launch
