// SPDX-License-Identifier: Apache-2.0
// The options of `tandem bench serve`. Plain values, checked when parsed.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/bench/load_report.h"
#include "launch/bench/rate_search.h"
#include "launch/bench/workload.h"

namespace tandem::launch {

struct ServeOptions {
  static constexpr double kOwnTimes = -1;  ///< In place of a rate: a trace at its own times.

  WorkloadOptions workload;
  std::int64_t prefix_history = 0;  ///< Requests of those passed over.
  std::string base_url = "http://127.0.0.1:8000", endpoint = "/v1/completions", model, api_key;
  std::string json, name, ceiling_model, ceiling_gpu;
  std::vector<double> rates;  ///< Empty: `search`.
  std::optional<RateSearch> search;
  Objectives objectives;
  std::int64_t max_concurrency = 0, vocab_size = 0, gpus = 0, warmups = 1;
  double burstiness = 1, time_scale = 1, timeout_s = 3600, temperature = 0, time_budget_s = 0;
  bool ignore_eos = false, no_ignore_eos = false, stop_at_miss = false;
  bool is_sweep = false;      ///< Rates were named or are searched.
  boost::json::object extra;  ///< More fields for each request.

  bool chat() const { return endpoint.find("chat") != std::string::npos; }
};

/// Nothing when only help was asked for; ConfigError for wrong ones.
std::optional<ServeOptions> parse_serve_options(bool print,
                                                const std::vector<std::string>& arguments);

}  // namespace tandem::launch
