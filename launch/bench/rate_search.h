// SPDX-License-Identifier: Apache-2.0
// Which request rates `bench serve --find-rate` tries: bisection, in ratios, for the highest rate
// that holds the objectives. Takes for granted that a rate below one that held holds too. Plain
// value, no clock, no server.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

class RateSearch {
 public:
  /// Of "LOW HIGH" or "LOW HIGH FIRST" in requests per second: the bounds are tried only when all
  /// between them held or missed. Without FIRST the middle (of ratios) comes first. Ends when two
  /// rates are less than `tolerance` (a share) apart. ConfigError for anything else.
  RateSearch(const std::vector<std::string>& words, double tolerance);

  /// The rate to try, or nothing when the answer is known.
  std::optional<double> next() const;
  void tell(double rate, bool held);

  double held() const { return held_; }      ///< Highest that held; 0: none.
  double missed() const { return missed_; }  ///< Lowest that missed; infinite: none.

 private:
  double low_, high_, tolerance_;
  std::optional<double> first_;
  double held_ = 0, missed_ = std::numeric_limits<double>::infinity();
};

/// "2.5" as a rate above 0, or "inf"; `flag` is named in the ConfigError.
double parse_rate(const std::string& flag, const std::string& word);

}  // namespace tandem::launch
