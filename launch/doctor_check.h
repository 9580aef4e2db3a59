// SPDX-License-Identifier: Apache-2.0
// The findings of `tandem doctor`: plain values, and their text and JSON forms.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::launch {

enum class Health { kGreen, kYellow, kRed };

/// One line of the report.
struct Check {
  std::string topic;  ///< "/dev/shm"
  Health health = Health::kGreen;
  std::string detail;  ///< What was found.
  std::string fix;     ///< What to do, one line; empty when green.
};

/// One message size of a collective.
struct CollectiveRow {
  std::string device;  ///< cpu or cuda
  std::int64_t size_bytes = 0;
  double latency_us = 0;       ///< Median of the slowest rank.
  double bus_gbyte_per_s = 0;  ///< size * 2 (n - 1) / n / time, as NCCL's tests count it.
};

const char* name_of(Health health);
Health worst(const std::vector<Check>& checks);

/// `color`: for terminals.
std::string checks_text(const std::vector<Check>& checks, bool color);
std::string collectives_text(const std::vector<CollectiveRow>& rows);
boost::json::array to_json(const std::vector<Check>& checks);
boost::json::array to_json(const std::vector<CollectiveRow>& rows);

}  // namespace tandem::launch
