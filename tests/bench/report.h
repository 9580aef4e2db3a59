// SPDX-License-Identifier: Apache-2.0
// Results of a bench program in the one schema of DESIGN 10, printed as JSON on stdout; every row
// is also a readable line on stderr at once, so that an ended run leaves something.
#pragma once

#include <string>
#include <vector>

namespace tandem::bench {

inline constexpr double kBf16PeakTflops = 989.0;  ///< H200 data sheet, dense.

class Report {
 public:
  /// `bench` names the results file; the arguments become "command".
  Report(std::string bench, int argc, char** argv);

  /// Median of `samples` with half the distance of their quartiles as spread. `ceiling` 0: none.
  void add_median(const std::string& name, const std::string& metric, const std::string& unit,
                  std::vector<double> samples, double ceiling);
  void print() const;

 private:
  std::string bench_, command_;
  std::vector<std::string> rows_;  ///< JSON objects
};

}  // namespace tandem::bench
