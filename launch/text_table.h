// SPDX-License-Identifier: Apache-2.0
// Rows of words as aligned text columns, and numbers as people read them.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace tandem::launch {

/// `value` with so many digits behind the point.
inline std::string decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Two spaces between columns, no white space at line ends, a line break after each row.
inline std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == widths.size()) widths.push_back(0);
      widths[c] = std::max(widths[c], row[c].size());
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += row[c] + std::string(widths[c] - row[c].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace tandem::launch
