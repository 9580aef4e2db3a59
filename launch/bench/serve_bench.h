// SPDX-License-Identifier: Apache-2.0
// One server under load, rate after rate: makes the requests of `bench serve`, sends them at their
// times, and reports what came back beside what the server counted. Talks to the server when it is
// made. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/bench/load_client.h"
#include "launch/bench/progress_line.h"
#include "launch/bench/results.h"
#include "launch/bench/serve_options.h"
#include "launch/bench/serve_report.h"
#include "launch/bench/served_facts.h"
#include "launch/bench/workload.h"
#include "runtime/model_config.h"

namespace tandem::launch {

class ServeBench {
 public:
  ServeBench(ServeOptions options, ProgressLine::Style style);

  /// Sends --num-warmups requests; ConfigError when one fails.
  void warm_up();

  /// ConfigError when there was no answer at all.
  void require_an_answer() const;

  /// Seconds from the first request to the last.
  double span_s(double rate) const { return times(rate).back(); }

  /// Plays the requests at `rate` per second. False when an objective was missed.
  bool run(double rate, BenchResults& results, bool print);

 private:
  void find_ceilings();
  std::vector<double> times(double rate) const;
  std::string body(const BenchRequest& request) const;
  LoadPlan plan_of(const std::vector<BenchRequest>& requests, const std::string& title) const;
  void require_all(const std::vector<RequestRecord>& records, const char* what) const;
  void send_history() const;
  /// Until the server has let go of the requests that were abandoned.
  void settle() const;
  ServeContext context_of(double rate) const;
  void add_server_side(const ServedCounts& before, const ServedCounts& after,
                       const LoadReport& report, ServeContext& context) const;

  ServeOptions options_;
  ProgressLine::Style style_;
  ServerAddress server_;
  ServedFacts facts_;
  Workload workload_;
  PromptMaker prompts_;
  std::optional<runtime::ModelConfig> ceiling_config_;
  std::int64_t completed_ = 0;
  std::string first_error_;
};

}  // namespace tandem::launch
