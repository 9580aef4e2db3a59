// SPDX-License-Identifier: Apache-2.0
// Line charts as SVG: no scripts, no external resources. Plain values; used by `bench scaling` and
// `plan --sweep`.
#pragma once

#include <string>
#include <vector>

namespace tandem::launch {

struct ChartPoint {
  double x = 0, y = 0;
  double spread = 0;  ///< Half the height of the error bar; 0: none.
  std::string label;  ///< Written beside the point; empty: none.
};

struct ChartSeries {
  std::string name;  ///< In the legend; empty: not listed.
  std::vector<ChartPoint> points;
  bool dashed = false;  ///< A reference line without markers.
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
  bool log_x = false, log_y = false;  ///< Then all values must be above 0.
  std::vector<double> x_ticks = {};   ///< Empty: chosen.
};

/// Charts side by side, two a row, under one title; `note` stands below them.
std::string svg_page(const std::string& title, const std::string& note,
                     const std::vector<Chart>& charts);

/// Tick values that cover [low, high]: 1, 2 or 5 times a power of ten; with `log` powers of ten,
/// and 2 and 5 times them when there are few.
std::vector<double> nice_ticks(double low, double high, bool log);

}  // namespace tandem::launch
