// SPDX-License-Identifier: Apache-2.0
// Counts durations in buckets that grow by a fifth each, from 1 us to minutes: a quantile is right
// to 10 % at constant memory. Plain value, one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace tandem::runtime {

class DurationHistogram {
 public:
  void add(double seconds) {
    const double place = std::log(std::max(seconds, kLeast_s) / kLeast_s) / std::log(kGrowth);
    ++counts_[std::min(static_cast<std::size_t>(place), counts_.size() - 1)];
    ++count_;
    sum_s_ += seconds;
  }

  std::int64_t count() const { return count_; }
  double sum_s() const { return sum_s_; }

  /// Seconds; 0 when nothing was added.
  double quantile(double q) const {
    const auto rank = static_cast<std::int64_t>(q * static_cast<double>(count_ - 1));
    std::int64_t below = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      below += counts_[i];
      if (below > rank) return kLeast_s * std::pow(kGrowth, static_cast<double>(i) + 0.5);
    }
    return 0;
  }

 private:
  static constexpr double kLeast_s = 1e-6, kGrowth = 1.2;
  std::array<std::int64_t, 110> counts_{};
  std::int64_t count_ = 0;
  double sum_s_ = 0;
};

}  // namespace tandem::runtime
