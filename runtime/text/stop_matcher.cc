// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "kernels/device/error.h"

namespace tandem::runtime {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop_str)
    : include_stop_str_(include_stop_str) {
  for (std::string& stop : stops) {
    TANDEM_REQUIRE(!stop.empty(), "a stop string is empty; leave it out");
    Pattern pattern;
    pattern.borders.assign(stop.size() + 1, 0);
    for (std::size_t length = 2, border = 0; length <= stop.size(); ++length) {
      while (border > 0 && stop[border] != stop[length - 1]) border = pattern.borders[border];
      if (stop[border] == stop[length - 1]) ++border;
      pattern.borders[length] = border;
    }
    pattern.text = std::move(stop);
    patterns_.push_back(std::move(pattern));
  }
}

void StopMatcher::Pattern::advance(char byte) {
  while (matched > 0 && text[matched] != byte) matched = borders[matched];
  if (text[matched] == byte) ++matched;
}

void StopMatcher::advance_all(char byte) {
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    Pattern& pattern = patterns_[i];
    pattern.advance(byte);
    if (pattern.matched == pattern.text.size() &&
        (!matched_ || pattern.text.size() > patterns_[*matched_].text.size())) {
      matched_ = i;
    }
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (stopped()) return "";
  for (const char byte : piece) {
    held_ += byte;
    advance_all(byte);
    if (!stopped()) continue;
    if (!include_stop_str_) held_.resize(held_.size() - patterns_[*matched_].text.size());
    return std::exchange(held_, "");
  }
  std::size_t undecided = 0;
  for (const Pattern& pattern : patterns_) undecided = std::max(undecided, pattern.matched);
  std::string safe = held_.substr(0, held_.size() - undecided);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopMatcher::finish() { return std::exchange(held_, ""); }

}  // namespace tandem::runtime
