// SPDX-License-Identifier: Apache-2.0
// Results of `tandem bench` and of the programs in tests/bench in one schema: bench, machine,
// commit, date, command, what was worked on, and rows of (case, metric, unit, statistic, runs,
// value, spread, ceiling, share). Rank 0 only.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "kernels/device/dtype.h"

namespace tandem::launch {

struct ResultRow {
  std::string name, metric, unit;
  double value = 0, spread = 0;
  double ceiling = 0;           ///< 0: none.
  bool lower_is_better = true;  ///< share = ceiling / value, else value / ceiling.
  std::size_t runs = 1;
  std::string statistic = "median";
};

class BenchResults {
 public:
  /// `command` is what repeats the run.
  BenchResults(std::string bench, std::string command);

  void add(const ResultRow& row);
  /// A row of the JSON that the table for people leaves to a table of its own.
  void add_detail(const ResultRow& row);
  /// Median of `samples` with half the distance of their quartiles as spread.
  void add(const std::string& name, const std::string& metric, const std::string& unit,
           std::vector<double> samples, double ceiling, bool lower_is_better);
  /// The value below which the share `quantile` of `samples` lies; `statistic` is its name.
  void add_quantile(const std::string& name, const std::string& metric, const std::string& unit,
                    const std::string& statistic, double quantile, std::vector<double> samples);
  /// What must be equal when results are compared: model, shape, type, lengths.
  void set_work(boost::json::object work) { work_ = std::move(work); }
  /// Results that were measured by other processes: their machine and commit, not this one's.
  void set_origin(boost::json::object machine, std::string commit);
  /// "NVIDIA H200, commit 1234567, 2026-11-30".
  std::string origin_text() const;
  /// For benches that use NCCL: 22809 is 2.28.9.
  void set_nccl_version(int version) { nccl_version_ = version; }
  /// Every row is also a line on standard error at once, so that an ended run leaves something.
  void set_echo(bool echo) { echo_ = echo; }

  /// A line below the table, not part of the JSON.
  void note(std::string line) { notes_ += std::move(line) + "\n"; }

  std::string table() const;  ///< For people.
  boost::json::object json() const;
  /// Writes `json()`, one row a line, to `path`; "-" is standard output. ConfigError when it cannot
  /// be written.
  void write(const std::string& path) const;

 private:
  std::string bench_, command_, commit_, notes_;
  boost::json::object machine_;  ///< Empty: this one.
  int nccl_version_ = 0;
  bool echo_ = false;
  boost::json::object work_;
  boost::json::array rows_;
  std::vector<std::vector<std::string>> lines_;
};

/// "bf16", "f16", "f32": the type in the name of a case.
std::string short_name(DType type);

/// The `q` quantile of sorted values, between neighbours by distance; 0 of none.
double quantile(const std::vector<double>& sorted, double q);

struct MedianSpread {
  double median = 0, spread = 0;  ///< Spread: half the distance of the quartiles.
};
MedianSpread median_spread(std::vector<double> samples);

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
