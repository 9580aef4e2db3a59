// SPDX-License-Identifier: Apache-2.0
// The options of `bench scaling`, and which of its words are `bench latency`'s. Plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/bench/latency_options.h"

namespace tandem::launch {

struct ScalingOptions {
  LatencyOptions latency;
  std::vector<int> sizes;
  std::vector<std::string> results;
  std::string cluster, json, csv, svg;
  int rounds = 1;
  bool dry_run = false, skip_waits = false;
  std::vector<std::string> passed_on;  ///< The words that are `bench latency`'s.
};

/// Nothing when the help was asked for, which is printed. ConfigError.
std::optional<ScalingOptions> parse_scaling_options(const std::vector<std::string>& arguments);

}  // namespace tandem::launch
