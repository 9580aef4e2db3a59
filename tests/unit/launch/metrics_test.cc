// SPDX-License-Identifier: Apache-2.0
#include "launch/server/metrics.h"

#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

TEST(Metrics, HistogramBucketsAreCumulative) {
  Histogram histogram{1.0, 2.5};
  for (const double value : {0.5, 1.0, 2.0, 9.0}) histogram.observe(value);
  std::string text;
  histogram.write(text, "x", "m=\"a\"");
  EXPECT_EQ(text,
            "tandem_x_bucket{m=\"a\",le=\"1\"} 2\n"
            "tandem_x_bucket{m=\"a\",le=\"2.5\"} 3\n"
            "tandem_x_bucket{m=\"a\",le=\"+Inf\"} 4\n"
            "tandem_x_sum{m=\"a\"} 12.5\n"
            "tandem_x_count{m=\"a\"} 4\n");
}

TEST(Metrics, TextNamesTheModelAndEscapesIt) {
  ServerMetrics metrics;
  metrics.finished["stop"] = 3;
  metrics.responses[429] = 2;
  runtime::LoopStats loop;
  loop.scheduler.used_chunks = 5;
  loop.scheduler.max_chunks = 11;
  loop.generated_tokens = 42;
  const std::string text = metrics.text(loop, "a\"b");
  const auto has = [&](const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has("tandem_kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.5")) << text;
  EXPECT_TRUE(has("tandem_generation_tokens_total{model_name=\"a\\\"b\"} 42"));
  EXPECT_TRUE(
      has("tandem_request_success_total{model_name=\"a\\\"b\",finished_reason=\"stop\"} 3"));
  EXPECT_TRUE(has("tandem_http_responses_total{status=\"429\"} 2"));
  EXPECT_TRUE(has("# TYPE tandem_time_to_first_token_seconds histogram"));
}

}  // namespace
}  // namespace tandem::launch
