// SPDX-License-Identifier: Apache-2.0
// Results of `bench latency` on several numbers of ranks, put side by side: speed-up and efficiency
// over the fewest ranks, with spreads. Refuses what is not the same work. Plain functions.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "launch/bench/results.h"
#include "launch/svg_chart.h"

namespace tandem::launch {

/// One document of `bench latency --json` and where it came from, for messages.
struct LatencyDocument {
  std::string source;
  boost::json::object json;
  int ranks() const;
};

/// ConfigError, naming `source`, when `text` holds no results of `bench latency`.
LatencyDocument parse_latency_document(const std::string& source, const std::string& text);

struct ScalingPoint {
  int ranks = 0;
  std::size_t runs = 0;
  MedianSpread latency_ms, tokens_per_s;
  MedianSpread speed_up, efficiency;  ///< Over the fewest ranks; efficiency 1: linear.
};

/// One shape at every number of ranks, fewest first.
struct ScalingCase {
  std::string model;   ///< "llama-3-8b bf16"
  std::string shape;   ///< "batch1 ctx128"
  std::string metric;  ///< tpot_ms or ttft_ms
  std::vector<ScalingPoint> points;
};

/// ConfigError with one sentence when the documents differ in work, cases, machine or commit, or
/// are of one size only. Several documents of a size: medians over them.
std::vector<ScalingCase> scaling_cases(const std::vector<LatencyDocument>& documents);

std::string scaling_table(const std::vector<ScalingCase>& cases);
std::string scaling_csv(const std::vector<ScalingCase>& cases);
/// Latency, throughput, speed-up and efficiency by ranks, and `more` charts.
std::string scaling_svg(const std::vector<ScalingCase>& cases, const std::vector<Chart>& more,
                        const std::string& note);
void add_rows(const std::vector<ScalingCase>& cases, BenchResults& results);

}  // namespace tandem::launch
