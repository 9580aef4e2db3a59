// SPDX-License-Identifier: Apache-2.0
// Counters and histograms of the server in Prometheus' text form. Names are vLLM's with the prefix
// `tandem_`. One thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "runtime/engine_loop.h"

namespace tandem::launch {

class Histogram {
 public:
  Histogram(std::initializer_list<double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void observe(double value);
  /// Appends the series `name` with `labels` ("a=\"b\"").
  void write(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  ///< Per bucket, the last is above all bounds.
  double sum_ = 0;
};

struct ServerMetrics {
  std::map<std::string, std::int64_t> finished;  ///< Answers by finish reason.
  std::map<int, std::int64_t> responses;         ///< HTTP answers by status.
  std::int64_t prompt_tokens = 0;                ///< Of accepted requests.
  Histogram ttft_s{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
                   0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0};
  Histogram itl_s{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                  0.2,   0.3,    0.4,   0.5,  0.75,  1.0,  2.5,   5.0};
  Histogram tpot_s{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                   0.2,   0.3,    0.4,   0.5,  0.75,  1.0,  2.5,   5.0};  ///< Means of answers.
  Histogram e2e_s{0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0};
  Histogram request_prompt_tokens{1,   2,   5,    10,   20,   50,    100,
                                  200, 500, 1000, 2000, 5000, 10000, 50000};
  Histogram request_generation_tokens{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};

  std::string text(const runtime::LoopStats& loop, const std::string& model) const;
};

}  // namespace tandem::launch
