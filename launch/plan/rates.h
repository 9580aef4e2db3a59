// SPDX-License-Identifier: Apache-2.0
// How fast one rank of a machine does what a step consists of: the seams around matmuls, attention,
// element-wise ops and messages, each by its size. Measured by `doctor --rates`, or computed from
// the numbers of a cluster file. Plain values.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "launch/cluster_config.h"

namespace tandem::launch {

/// Time of an op by its size, through measured points.
class TimeCurve {
 public:
  TimeCurve() = default;
  /// (size, microseconds), any order; both above 0.
  explicit TimeCurve(std::vector<std::pair<double, double>> points);
  bool empty() const { return points_.empty(); }
  const std::vector<std::pair<double, double>>& points() const { return points_; }
  /// Microseconds: a power law between neighbouring points, in proportion to the size above the
  /// largest point, and below the smallest never less than the line to size 0 would say, because
  /// an op has a fixed cost.
  double at(double size) const;

 private:
  std::vector<std::pair<double, double>> points_;  ///< By size.
};

/// A matmul of so many rows by weights of so many bytes (bf16) that come from memory, together with
/// what is fused behind it.
struct MatmulCurve {
  double rows = 1;
  TimeCurve by_bytes;
};

/// Time of such a matmul by rows and bytes.
class MatmulTimes {
 public:
  MatmulTimes() = default;
  explicit MatmulTimes(std::vector<MatmulCurve> curves);
  bool empty() const { return curves_.empty(); }
  const std::vector<MatmulCurve>& curves() const { return curves_; }
  /// Microseconds; a matmul of a few rows costs its weights, of many its operations.
  double at(double rows, double weight_bytes) const;

 private:
  std::vector<MatmulCurve> curves_;  ///< By rows.
};

/// Query heads times their size, of the attention that CPU ranks are measured at.
inline constexpr double kCpuProbeWidth = 9 * 64;

struct DeviceRates {
  std::string origin;           ///< For people: a file's name.
  std::string device;           ///< cpu or cuda
  std::string name;             ///< "NVIDIA H200"
  boost::json::object machine;  ///< As results name it; empty: of a cluster file.
  int ranks = 1;                ///< That worked at the same time.
  double memory_bytes = 0;      ///< Of one rank's device.
  double plan_us = 0;        ///< From one step's end to the next one's start: plan and broadcast.
  double read_gb_per_s = 0;  ///< Fastest stream that was seen, for floors.
  double matmul_tflops = 0;
  MatmulTimes column_matmul;  ///< Split by columns: `gate_up_act`, activation included.
  MatmulTimes row_matmul;     ///< Split by rows: projection, residual and norm included.
  /// By operations on CPUs, which multiply for every query head, and by bytes of keys and values on
  /// GPUs, which read them once for all heads of a group.
  TimeCurve decode_attention;
  TimeCurve prefill_attention;  ///< By operations; CPU ranks: of heads as probed.
  TimeCurve elementwise;        ///< By bytes read and written.
  TimeCurve all_reduce;         ///< By bytes of one rank's message; empty: not known.
};

/// Rates at the file's numbers, each op at its ceiling: a floor, not a measurement. `ranks` share
/// the all-reduce.
DeviceRates rates_of(const ClusterConfig& cluster, int ranks);
/// The all-reduce of `ranks` ranks of the cluster.
TimeCurve all_reduce_of(const ClusterConfig& cluster, int ranks);

boost::json::object to_json(const DeviceRates& rates);
/// From the output of `doctor --rates`. ConfigError naming `origin`.
DeviceRates rates_from_doctor(const std::string& origin, const std::string& text);

}  // namespace tandem::launch
