// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/serve_report.h"

#include <cmath>
#include <numeric>

#include "kernels/device/error.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

struct Latency {
  const char* title;
  const char* metric;
  const std::vector<double>& sorted;
};

std::vector<Latency> latencies(const LoadReport& report) {
  return {{"TTFT ms", "ttft_ms", report.ttft_ms},
          {"TPOT ms", "tpot_ms", report.tpot_ms},
          {"ITL ms", "itl_ms", report.itl_ms},
          {"E2EL ms", "e2el_ms", report.e2el_ms},
          {"client queue ms", "client_queue_ms", report.queue_ms}};
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

std::string describe_cut(const LoadReport& report, const ServeContext& context) {
  std::string text;
  const auto add = [&](const char* name, std::int64_t count, double limit_ms) {
    if (limit_ms > 0)
      text += concat(text.empty() ? "" : ", ", name, " > ", decimal(limit_ms, 0), " ms of ", count);
  };
  add("TTFT", context.misses.ttft, context.objectives.ttft_ms);
  add("TPOT", context.misses.tpot, context.objectives.tpot_ms);
  add("E2EL", context.misses.e2el, context.objectives.e2el_ms);
  return concat("ended after ", decimal(report.seconds, 1), " s, with ", report.abandoned,
                " requests unfinished, because a p99 cannot hold any more (", text, "): missed\n");
}

std::string verdict(const char* name, const std::vector<double>& sorted, double limit) {
  if (limit <= 0) return {};
  const double value = quantile(sorted, 0.99);
  return concat(", p99 ", name, " ", decimal(value, 1), value <= limit ? " <= " : " > ",
                decimal(limit, 0), " ms");
}

}  // namespace

bool holds(const LoadReport& report, const Objectives& objectives) {
  const auto within = [](const std::vector<double>& sorted, double limit) {
    return limit <= 0 || quantile(sorted, 0.99) <= limit;
  };
  return report.completed > 0 && report.failed == 0 && report.abandoned == 0 &&
         within(report.due_ttft_ms, objectives.ttft_ms) &&
         within(report.tpot_ms, objectives.tpot_ms) &&
         within(report.due_e2el_ms, objectives.e2el_ms);
}

std::string describe(const LoadReport& report, const ServeContext& context) {
  const auto output = static_cast<double>(report.output_tokens);
  const double total = output + static_cast<double>(report.prompt_tokens);
  std::string text = concat(
      "== ", context.name, "\n", report.completed, " completed, ", report.failed, " failed in ",
      decimal(report.seconds, 1), " s; running ", decimal(report.mean_running, 1), " on average, ",
      report.peak_running, " at most; waiting in the client ", report.peak_queued, " at most\n");
  for (const auto& [error, count] : report.errors) text += concat("   ", count, " x ", error, "\n");
  text += concat("requests/s ", decimal(report.per_s(static_cast<double>(report.completed)), 3),
                 " (asked for ", std::isfinite(context.rate) ? decimal(context.rate, 3) : "inf",
                 ")   output tokens/s ", decimal(report.per_s(output), 1), "   total tokens/s ",
                 decimal(report.per_s(total), 1), "   per GPU ",
                 decimal(report.per_s(output) / static_cast<double>(context.gpus), 1),
                 "   per user ", decimal(quantile(report.user_tokens_per_s, 0.5), 1), "\n");
  std::vector<std::vector<std::string>> rows{{"", "mean", "p50", "p90", "p99"}};
  for (const Latency& latency : latencies(report)) {
    const auto& sorted = latency.sorted;
    rows.push_back({latency.title, decimal(mean(sorted), 2), decimal(quantile(sorted, 0.5), 2),
                    decimal(quantile(sorted, 0.9), 2), decimal(quantile(sorted, 0.99), 2)});
  }
  text += text_table(rows);
  if (context.floor_s > 0)
    text += concat("share of the hardware's ceiling ",
                   decimal(100 * context.floor_s / report.seconds, 1), " %\n");
  if (context.reuse)
    text += concat("prompt tokens reused ", decimal(100 * *context.reuse, 1), " %, preemptions ",
                   context.preemptions, "\n");
  const Objectives& wanted = context.objectives;
  if (report.abandoned > 0) return text + describe_cut(report, context);
  if (!wanted.any()) return text;
  text +=
      concat("goodput ", decimal(report.per_s(static_cast<double>(report.good)), 3), " requests/s");
  if (report.fluidity > 0) text += concat(", fluidity index ", decimal(report.fluidity, 4));
  text += verdict("TTFT", report.due_ttft_ms, wanted.ttft_ms) +
          verdict("TPOT", report.tpot_ms, wanted.tpot_ms) +
          verdict("E2EL", report.due_e2el_ms, wanted.e2el_ms);
  return text + (holds(report, wanted) ? ": held\n" : ": missed\n");
}

void add_rows(const LoadReport& report, const ServeContext& context, BenchResults& results) {
  const std::string& name = context.name;
  const auto add = [&](const std::string& metric, const std::string& unit,
                       const std::string& statistic, std::size_t runs, double value,
                       double ceiling) {
    results.add({name, metric, unit, value, 0, ceiling, false, runs, statistic});
  };
  const auto rate = [&](const char* metric, const char* unit, double value, double ceiling = 0) {
    add(metric, unit, "mean", static_cast<std::size_t>(report.completed), value, ceiling);
  };
  if (report.abandoned > 0) {
    // Latencies of those that were answered in time say nothing about the others.
    rate("abandoned", "requests", static_cast<double>(report.abandoned));
    return rate("objectives_held", "bool", 0);
  }
  const auto output = static_cast<double>(report.output_tokens);
  const double total = output + static_cast<double>(report.prompt_tokens);
  rate("request_throughput", "requests/s", report.per_s(static_cast<double>(report.completed)));
  rate("output_throughput", "tokens/s", report.per_s(output),
       context.floor_s > 0 ? output / context.floor_s : 0);
  rate("total_token_throughput", "tokens/s", report.per_s(total));
  rate("output_tokens_per_s_per_gpu", "tokens/s",
       report.per_s(output) / static_cast<double>(context.gpus));
  rate("failed", "requests", static_cast<double>(report.failed));
  rate("mean_running", "requests", report.mean_running);
  if (context.reuse) rate("prompt_tokens_reused", "share", *context.reuse);
  add("output_tokens_per_s_per_user", "tokens/s", "median", report.user_tokens_per_s.size(),
      quantile(report.user_tokens_per_s, 0.5), 0);
  for (const Latency& latency : latencies(report)) {
    const std::vector<double>& sorted = latency.sorted;
    add(latency.metric, "ms", "mean", sorted.size(), mean(sorted), 0);
    add(latency.metric, "ms", "median", sorted.size(), quantile(sorted, 0.5), 0);
    add(latency.metric, "ms", "p90", sorted.size(), quantile(sorted, 0.9), 0);
    add(latency.metric, "ms", "p99", sorted.size(), quantile(sorted, 0.99), 0);
  }
  if (!context.objectives.any()) return;
  rate("request_goodput", "requests/s", report.per_s(static_cast<double>(report.good)));
  if (report.fluidity > 0) rate("fluidity_index", "share", report.fluidity);
  rate("objectives_held", "bool", holds(report, context.objectives) ? 1 : 0);
}

}  // namespace tandem::launch
