// SPDX-License-Identifier: Apache-2.0
// The options of `tandem plan` and what they name: the model, the machines' rates. Plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/cluster_config.h"
#include "launch/plan/size_plan.h"

namespace tandem::launch {

struct PlanOptions {
  std::string model, cluster, dtype = "auto", name;
  std::vector<std::string> doctor;
  std::vector<int> sizes, batches, inputs, prefills;
  int output_len = 128, step_tokens = 2048;
  double memory_share = 0.9;
  std::string json, sweep, predicted;
  std::vector<std::string> check;
};

/// Nothing when the help was asked for, which is printed when `print_help`. ConfigError.
std::optional<PlanOptions> parse_plan_options(bool print_help,
                                              const std::vector<std::string>& arguments);

/// Rates by number of ranks, from doctor's files and the cluster's.
class RateSource {
 public:
  explicit RateSource(const PlanOptions& options);
  /// Most ranks that it knows of.
  int largest() const;
  /// Measured ones where they are; the message of so many ranks from the cluster file where they
  /// are not. ConfigError when neither tells.
  DeviceRates at(int ranks) const;

 private:
  std::optional<ClusterConfig> cluster_;
  std::vector<DeviceRates> measured_;
};

/// The text of a file; ConfigError naming `flag` and what to name there.
std::string read_text_file(const std::string& flag, const std::string& path,
                           const std::string& what);

}  // namespace tandem::launch
