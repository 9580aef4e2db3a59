// SPDX-License-Identifier: Apache-2.0
// Predictions against results, row by row: both are documents in the schema of `tandem bench`.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace tandem::launch {

/// Largest error of a prediction that counts as right.
inline constexpr double kPlanErrorLimit = 0.15;

struct CheckedRow {
  std::string name, metric, source;
  double predicted = 0, measured = 0;
  double error() const { return predicted / measured - 1; }
};

/// Rows that both have, in the order of the results. ConfigError when there is none, or a text is
/// no such document; `sources` name them.
std::vector<CheckedRow> check_predictions(const std::string& predicted_source,
                                          const std::string& predicted,
                                          const std::vector<std::string>& sources,
                                          const std::vector<std::string>& results);

std::string check_table(const std::vector<CheckedRow>& rows);
bool within_limit(const std::vector<CheckedRow>& rows);
boost::json::array to_json(const std::vector<CheckedRow>& rows);

}  // namespace tandem::launch
