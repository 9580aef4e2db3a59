// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/serve.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "kernels/device/error.h"
#include "launch/bench/serve_bench.h"
#include "launch/output_file.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// Rates in turn, while there is time.
class Rates {
 public:
  explicit Rates(const ServeOptions& options) : options_(options), search_(options.search) {}

  void run(ServeBench& bench, BenchResults& results, bool print) {
    while (const std::optional<double> rate = next()) {
      const double begin_s = now_s(), span_s = bench.span_s(*rate);
      if (options_.time_budget_s > 0 && begin_s + span_s + beside_s_ > options_.time_budget_s) {
        std::fprintf(stderr, "no time is left for %s requests/s\n", decimal(*rate, 3).c_str());
        return;
      }
      const bool held = bench.run(*rate, results, print);
      beside_s_ = std::max(beside_s_, now_s() - begin_s - span_s);
      if (search_) search_->tell(*rate, held);
      if (held)
        held_ = std::max(held_, *rate);
      else
        missed_ = std::min(missed_, *rate);
      if (!held && options_.stop_at_miss && !search_) return;
    }
  }

  void report(BenchResults& results, bool print) const {
    if (!options_.objectives.any() || !options_.is_sweep) return;
    const std::string name = options_.name.empty() ? "sweep" : options_.name;
    const auto add = [&](const char* metric, double value, const char* statistic) {
      results.add({name, metric, "requests/s", value, 0, 0, false, tried_, statistic});
    };
    add("highest_rate_held", held_, "max");
    if (std::isfinite(missed_)) add("lowest_rate_missed", missed_, "min");
    if (!print) return;
    std::printf("highest rate that holds the objectives: %s\n",
                held_ > 0 ? concat(decimal(held_, 3), " requests/s").c_str() : "none");
    if (std::isfinite(missed_))
      std::printf("lowest rate that misses them: %s requests/s\n", decimal(missed_, 3).c_str());
  }

 private:
  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  std::optional<double> next() {
    if (search_) {
      const auto rate = search_->next();
      tried_ += rate.has_value();
      return rate;
    }
    if (tried_ == options_.rates.size()) return std::nullopt;
    return options_.rates[tried_++];
  }

  const ServeOptions& options_;
  std::optional<RateSearch> search_;
  Clock::time_point start_ = Clock::now();
  std::size_t tried_ = 0;
  double held_ = 0, missed_ = std::numeric_limits<double>::infinity();
  double beside_s_ = 0;  ///< Of a run, beside the time in which requests are sent.
};

}  // namespace

int run_bench_serve(Ranks& ranks, const std::vector<std::string>& arguments) {
  const auto options = parse_serve_options(ranks.first(), arguments);
  if (!options) return 0;
  TANDEM_REQUIRE(ranks.control.size() == 1,
                 "tandem bench serve is one client; start it without mpirun");
  check_outputs({{"--json", options->json}});
  const bool print = options->json != "-";
  Rates rates(*options);
  ServeBench bench(*options, ProgressLine::automatic(ranks.session.under_launcher()));
  BenchResults results("serve", command_text(ranks, "bench serve", arguments));
  bench.warm_up();
  rates.run(bench, results, print);
  rates.report(results, print);
  if (!options->json.empty()) results.write(options->json);
  bench.require_an_answer();
  return 0;
}

}  // namespace tandem::launch
