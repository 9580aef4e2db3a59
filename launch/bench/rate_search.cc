// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/rate_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

/// Three digits: what one reads, says and types again.
double rounded(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 2);
  return std::round(rate / unit) * unit;
}

}  // namespace

double parse_rate(const std::string& flag, const std::string& word) {
  char* end = nullptr;
  const double rate = std::strtod(word.c_str(), &end);
  TANDEM_REQUIRE(end != word.c_str() && *end == '\0' && rate > 0, flag, " ", word,
                 " is no rate; write requests per second, or inf");
  return rate;
}

RateSearch::RateSearch(const std::vector<std::string>& words, double tolerance)
    : tolerance_(tolerance) {
  TANDEM_REQUIRE(words.size() == 2 || words.size() == 3,
                 "--find-rate takes two rates to search between, and if you like the first to try; "
                 "write for example --find-rate 1 8");
  low_ = parse_rate("--find-rate", words[0]);
  high_ = parse_rate("--find-rate", words[1]);
  TANDEM_REQUIRE(low_ < high_ && std::isfinite(high_), "--find-rate ", words[0], " ", words[1],
                 ": the second rate must be finite and above the first");
  TANDEM_REQUIRE(tolerance > 0, "--rate-tolerance must be above 0, not ", tolerance);
  if (words.size() < 3) return;
  first_ = parse_rate("--find-rate", words[2]);
  TANDEM_REQUIRE(low_ <= *first_ && *first_ <= high_, "--find-rate ", words[0], " ", words[1], " ",
                 words[2], ": the first rate to try must lie between the other two");
}

std::optional<double> RateSearch::next() const {
  const double low = std::max(low_, held_), high = std::min(high_, missed_);
  if (first_) return first_;
  const double middle = rounded(std::sqrt(low * high));
  if (high > low * (1 + tolerance_) && low < middle && middle < high) return middle;
  if (held_ == 0 && missed_ > low_) return low_;
  if (std::isinf(missed_) && held_ < high_) return high_;
  return std::nullopt;
}

void RateSearch::tell(double rate, bool held) {
  first_.reset();
  if (held)
    held_ = std::max(held_, rate);
  else
    missed_ = std::min(missed_, rate);
}

}  // namespace tandem::launch
