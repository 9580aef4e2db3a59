// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/rates.h"

#include <algorithm>
#include <cmath>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

/// Value at `x` of the power law through two points.
double power_law(std::pair<double, double> a, std::pair<double, double> b, double x) {
  const double slope = std::log(b.second / a.second) / std::log(b.first / a.first);
  return a.second * std::pow(x / a.first, slope);
}

}  // namespace

TimeCurve::TimeCurve(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end());
  for (const auto& [size, us] : points_)
    TANDEM_REQUIRE(size > 0 && us > 0 && std::isfinite(size) && std::isfinite(us),
                   "a measured time must be above 0: ", us, " us at size ", size);
}

double TimeCurve::at(double size) const {
  TANDEM_ASSERT(!points_.empty(), "nothing was measured");
  if (size <= 0) return 0;
  const auto above = std::lower_bound(points_.begin(), points_.end(), std::pair{size, 0.0});
  if (above == points_.end()) return points_.back().second * size / points_.back().first;
  if (above != points_.begin()) return power_law(*(above - 1), *above, size);
  const auto& first = points_.front();
  if (points_.size() == 1) return first.second;
  // Fixed cost plus bytes: the line through the two smallest, not below the smallest's share.
  const auto& second = points_[1];
  const double slope = std::max(0.0, (second.second - first.second) / (second.first - first.first));
  const double line = first.second - slope * (first.first - size);
  return std::clamp(line, first.second * size / first.first, first.second);
}

MatmulTimes::MatmulTimes(std::vector<MatmulCurve> curves) : curves_(std::move(curves)) {
  std::sort(curves_.begin(), curves_.end(),
            [](const MatmulCurve& a, const MatmulCurve& b) { return a.rows < b.rows; });
}

double MatmulTimes::at(double rows, double weight_bytes) const {
  TANDEM_ASSERT(!curves_.empty(), "no matmul was measured");
  const auto above = std::find_if(curves_.begin(), curves_.end(),
                                  [rows](const MatmulCurve& curve) { return curve.rows >= rows; });
  if (above == curves_.end()) {
    const MatmulCurve& last = curves_.back();
    return last.by_bytes.at(weight_bytes) * rows / last.rows;
  }
  const double us = above->by_bytes.at(weight_bytes);
  if (above == curves_.begin() || above->rows == rows) return us;
  const MatmulCurve& below = *(above - 1);
  return power_law({below.rows, below.by_bytes.at(weight_bytes)}, {above->rows, us}, rows);
}

TimeCurve all_reduce_of(const ClusterConfig& cluster, int ranks) {
  if (ranks == 1) return {};
  const bool several = ranks > cluster.ranks_per_host;
  const double rate = several ? cluster.between_hosts_gbyte_per_s : cluster.within_host_gbyte_per_s;
  const double latency_us =
      several ? cluster.between_hosts_latency_us : cluster.within_host_latency_us;
  TANDEM_REQUIRE(rate > 0, "cluster ", cluster.name, " says nothing of the link ",
                 several ? "between its hosts; add between_hosts_gbyte_per_s"
                         : "within a host; add within_host_gbyte_per_s",
                 " to [links]");
  // Reduce-scatter and all-gather: every rank sends (n - 1) / n of the message twice.
  const double volume = 2.0 * (ranks - 1) / ranks;
  std::vector<std::pair<double, double>> points;
  for (double bytes = 256; bytes <= double(1 << 30); bytes *= 4)
    points.emplace_back(bytes, latency_us + bytes * volume / rate / 1e3);
  return TimeCurve(points);
}

DeviceRates rates_of(const ClusterConfig& cluster, int ranks) {
  TANDEM_REQUIRE(
      cluster.memory_gib > 0 && cluster.memory_gbyte_per_s > 0 && cluster.bf16_tflops > 0,
      "cluster ", cluster.name,
      " does not say how fast its devices are; add memory_gib, memory_gbyte_per_s and "
      "bf16_tflops to [device], or give --doctor FILE");
  DeviceRates rates;
  rates.origin = "cluster " + cluster.name;
  rates.device = cluster.device;
  rates.name = cluster.model;
  rates.ranks = ranks;
  rates.memory_bytes = cluster.memory_gib * double(1 << 30);
  const double op_us = cluster.op_latency_us;
  rates.plan_us = cluster.device == "cuda" ? 0 : op_us;  // GPUs plan one step ahead
  rates.read_gb_per_s = cluster.memory_gbyte_per_s;
  rates.matmul_tflops = cluster.bf16_tflops;
  const double us_per_byte = 1e-3 / cluster.memory_gbyte_per_s;
  const double us_per_flop = 1e-6 / cluster.bf16_tflops;
  std::vector<std::pair<double, double>> moved, computed;
  for (double size = 1024; size <= 1e15; size *= 2) {
    moved.emplace_back(size, op_us + size * us_per_byte);
    computed.emplace_back(size, op_us + size * us_per_flop);
  }
  // bf16: a row does one multiplication and one addition per two bytes of weights.
  std::vector<MatmulCurve> matmuls;
  for (double rows = 1; rows <= 1 << 20; rows *= 2) {
    std::vector<std::pair<double, double>> points;
    for (double size = 1024; size <= 1e13; size *= 2)
      points.emplace_back(size, op_us + size * std::max(us_per_byte, rows * us_per_flop));
    matmuls.push_back({rows, TimeCurve(points)});
  }
  rates.column_matmul = rates.row_matmul = MatmulTimes(matmuls);
  rates.decode_attention = TimeCurve(cluster.device == "cuda" ? moved : computed);
  rates.prefill_attention = TimeCurve(computed);
  rates.elementwise = TimeCurve(moved);
  rates.all_reduce = all_reduce_of(cluster, ranks);
  return rates;
}

}  // namespace tandem::launch
