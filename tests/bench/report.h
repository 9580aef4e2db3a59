// SPDX-License-Identifier: Apache-2.0
// Results of a bench program, in the schema and by the code of `tandem bench`: JSON on stdout;
// every row is also a readable line on stderr at once, so that an ended run leaves something.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/device/error.h"
#include "launch/bench/results.h"

namespace tandem::bench {

inline constexpr double kBf16PeakTflops = 989.0;  ///< H200 data sheet, dense.

class Report : public launch::BenchResults {
 public:
  /// `bench` names the results file; the arguments become "command".
  Report(std::string bench, int argc, char** argv)
      : BenchResults(std::move(bench), command_of(argc, argv)) {
    set_echo(true);
  }
  /// Median of `samples` with half the distance of their quartiles as spread. `ceiling` 0: none.
  void add_median(const std::string& name, const std::string& metric, const std::string& unit,
                  std::vector<double> samples, double ceiling) {
    add(name, metric, unit, std::move(samples), ceiling, /*lower_is_better=*/false);
  }
  void print() const { write("-"); }

 private:
  static std::string command_of(int argc, char** argv) {
    std::string command;
    for (int i = 0; i < argc; ++i) command += concat(i == 0 ? "" : " ", argv[i]);
    return command;
  }
};

}  // namespace tandem::bench
