// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/steady_start.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::launch {
namespace {

/// Computes the prompts as a scheduler would: in order, every step as full as it may be, and a
/// token for each request whose prompt is done. Returns what is left of the answers then.
std::vector<std::int32_t> after_prompts(const std::vector<BenchRequest>& first,
                                        std::vector<std::int32_t> left, std::int32_t step_tokens,
                                        std::int32_t mixed_step_tokens) {
  std::size_t done = 0;
  std::int32_t prompt_left = first[0].input + first[0].output - left[0];
  while (done < first.size()) {
    const auto decoding = static_cast<std::int32_t>(done);
    std::int32_t rows = step_tokens - decoding;
    if (mixed_step_tokens > 0 && decoding > 0)
      rows = std::min(rows, std::max(mixed_step_tokens - decoding, mixed_step_tokens / 4));
    for (std::int32_t i = 0; i < decoding; ++i) --left[static_cast<std::size_t>(i)];
    while (rows > 0 && done < first.size()) {
      const std::int32_t taken = std::min(rows, prompt_left);
      rows -= taken;
      prompt_left -= taken;
      if (prompt_left > 0) break;
      --left[done++];
      if (done < first.size()) prompt_left = first[done].input + first[done].output - left[done];
    }
  }
  return left;
}

void expect_even(std::int32_t places, std::int32_t input, std::int32_t output,
                 std::int32_t step_tokens, std::int32_t mixed) {
  BenchRequest request;
  request.input = input;
  request.output = output;
  const std::vector<BenchRequest> first(static_cast<std::size_t>(places), request);
  auto left = after_prompts(first, steady_start(first, step_tokens, mixed), step_tokens, mixed);
  std::sort(left.begin(), left.end());
  const double apart = static_cast<double>(output) / places;
  for (std::size_t i = 0; i < left.size(); ++i)
    EXPECT_NEAR(left[i], (static_cast<double>(i) + 0.5) * apart, 3 + apart / 2)
        << i << " of " << places << ", " << input << " + " << output << ", mixed " << mixed;
}

TEST(SteadyStart, WhatIsLeftIsSpreadEvenlyOnceAllAnswer) {
  expect_even(256, 1024, 1024, 2048, 0);
  expect_even(64, 1024, 256, 2048, 512);
  expect_even(1, 10, 10, 100, 0);
}

TEST(SteadyStart, NobodyIsGivenMoreThanAnAnswer) {
  BenchRequest request;
  request.input = 5000;
  request.output = 20;  // All would have ended while the prompts are computed.
  const std::vector<BenchRequest> first(50, request);
  for (const std::int32_t left : steady_start(first, 64, 0)) {
    EXPECT_GE(left, 1);
    EXPECT_LE(left, 20);
  }
}

}  // namespace
}  // namespace tandem::launch
