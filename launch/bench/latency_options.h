// SPDX-License-Identifier: Apache-2.0
// What `bench latency` measures; `bench scaling` passes the same options on. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/engine_options.h"

namespace tandem::launch {

struct LatencyOptions {
  EngineOptions engine;
  std::vector<std::int32_t> batches, contexts, prefills;
  std::int32_t output_len = 64, runs = 5, warmup = 1;
  std::string name;
  bool both_domains = false;  ///< --mem-sync-domains=both

  /// Adds these options to `description`; parsed values land in this object.
  void add_to(boost::program_options::options_description& description);
  /// ConfigError for a value out of range.
  void validate();
};

}  // namespace tandem::launch
