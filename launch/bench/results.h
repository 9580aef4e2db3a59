// SPDX-License-Identifier: Apache-2.0
// Results of `tandem bench` in one schema: bench, machine, commit, date, command, and rows of
// (case, metric, unit, statistic, runs, value, spread, ceiling, share). Rank 0 only.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace tandem::launch {

class BenchResults {
 public:
  /// `command` is what repeats the run.
  BenchResults(std::string bench, std::string command);

  /// Median of `samples` with half the distance of their quartiles as spread. `ceiling` 0: none;
  /// `lower_is_better`: share = ceiling / value, else value / ceiling.
  void add(const std::string& name, const std::string& metric, const std::string& unit,
           std::vector<double> samples, double ceiling, bool lower_is_better);

  std::string table() const;  ///< For people.
  boost::json::object json() const;
  /// Writes `json()` to `path`; "-" is standard output. ConfigError when it cannot be written.
  void write(const std::string& path) const;

 private:
  std::string bench_, command_;
  boost::json::array rows_;
  std::vector<std::vector<std::string>> lines_;
};

/// The fastest that this machine was seen to read memory and to multiply matrices.
struct Ceilings {
  double read_gb_per_s = 0;  ///< 0: not known.
  double matmul_tflops = 0;  ///< bf16
};

/// For a GPU by its name (measured values, with their source in the code).
Ceilings gpu_ceilings(const std::string& gpu);
/// Measured here and now with `threads` threads per rank; all ranks of the host at once.
Ceilings measure_cpu_ceilings(int threads);

}  // namespace tandem::launch
