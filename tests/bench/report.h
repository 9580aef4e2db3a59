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
  /// The value below which the share `quantile` of `samples` lies; `statistic` is its name.
  void add_quantile(const std::string& name, const std::string& metric, const std::string& unit,
                    const std::string& statistic, double quantile, std::vector<double> samples);
  /// For benches that use NCCL: 22809 is 2.28.9.
  void set_nccl_version(int version) { nccl_version_ = version; }
  void print() const;

 private:
  void add_row(const std::string& name, const std::string& metric, const std::string& unit,
               const std::string& statistic, std::size_t runs, double value, double spread,
               double ceiling);

  std::string bench_, command_;
  int nccl_version_ = 0;
  std::vector<std::string> rows_;  ///< JSON objects
};

}  // namespace tandem::bench
