// SPDX-License-Identifier: Apache-2.0
#include "launch/server/metrics.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += concat("# HELP tandem_", name, " ", help, "\n# TYPE tandem_", name, " ", type, "\n");
}

template <typename Number>
void sample(std::string& out, const std::string& name, const std::string& labels, Number value) {
  out += concat("tandem_", name, "{", labels, "} ", value, "\n");
}

void summary(std::string& out, const char* name, const char* help, const std::string& labels,
             const runtime::DurationHistogram& times) {
  head(out, name, "summary", help);
  for (const double q : {0.5, 0.99}) {
    sample(out, name, concat(labels, ",quantile=\"", q, "\""), times.quantile(q));
  }
  sample(out, std::string(name) + "_sum", labels, times.sum_s());
  sample(out, std::string(name) + "_count", labels, times.count());
}

/// A label's value between quotes.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

}  // namespace

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(bucket - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(std::string& out, const std::string& name, const std::string& labels) const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? concat(bounds_[i]) : "+Inf";
    sample(out, name + "_bucket", concat(labels, ",le=\"", bound, "\""), total);
  }
  sample(out, name + "_sum", labels, sum_);
  sample(out, name + "_count", labels, total);
}

std::string ServerMetrics::text(const runtime::LoopStats& loop, const std::string& model) const {
  const runtime::SchedulerStats& s = loop.scheduler;
  const std::string labels = "model_name=\"" + escaped(model) + "\"";
  std::string out;
  const auto one = [&](const char* name, const char* type, const char* help, auto value) {
    head(out, name, type, help);
    sample(out, name, labels, value);
  };
  const double max_chunks = static_cast<double>(std::max<std::int64_t>(s.max_chunks - 1, 1));
  one("num_requests_running", "gauge", "Sequences that are computed.", s.running);
  one("num_requests_waiting", "gauge", "Sequences that wait for room.", s.waiting);
  one("kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.",
      static_cast<double>(s.used_chunks) / max_chunks);
  one("kv_cache_mapped_chunks", "gauge", "Chunks the cache has grown to.", s.mapped_chunks);
  one("num_preemptions_total", "counter", "Sequences put back for lack of cache.", s.preemptions);
  one("prefix_cache_queries_total", "counter", "Prompt tokens looked up.", s.prefix_queries_tokens);
  one("prefix_cache_hits_total", "counter", "Prompt tokens found.", s.prefix_hits_tokens);
  one("prompt_tokens_total", "counter", "Prompt tokens of accepted requests.", prompt_tokens);
  one("generation_tokens_total", "counter", "Tokens generated.", loop.generated_tokens);
  one("engine_steps_total", "counter", "Steps of the engine.", loop.steps);
  one("late_steps_total", "counter", "Steps given to the device after it can have been idle.",
      loop.times.late_steps);
  summary(out, "step_host_seconds", "Time of a step outside the engine.", labels, loop.times.host);
  summary(out, "step_device_idle_seconds", "At most so long the device waited for a step.", labels,
          loop.times.idle);
  head(out, "request_success_total", "counter", "Answers by the reason of their end.");
  for (const auto& [reason, count] : finished) {
    sample(out, "request_success_total", labels + ",finished_reason=\"" + reason + "\"", count);
  }
  head(out, "http_responses_total", "counter", "HTTP answers by status.");
  for (const auto& [status, count] : responses) {
    sample(out, "http_responses_total", concat("status=\"", status, "\""), count);
  }
  const auto histogram = [&](const char* name, const char* help, const Histogram& h) {
    head(out, name, "histogram", help);
    h.write(out, name, labels);
  };
  histogram("time_to_first_token_seconds", "From the request to its first token.", ttft_s);
  histogram("inter_token_latency_seconds", "Between two tokens of an answer.", itl_s);
  histogram("request_time_per_output_token_seconds", "Mean of an answer after its first token.",
            tpot_s);
  histogram("e2e_request_latency_seconds", "From the request to its last token.", e2e_s);
  histogram("request_prompt_tokens", "Prompt tokens of a request.", request_prompt_tokens);
  histogram("request_generation_tokens", "Tokens of an answer.", request_generation_tokens);
  return out;
}

}  // namespace tandem::launch
