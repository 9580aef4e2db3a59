// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/rate_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

/// Rates tried where those up to `edge` hold.
std::vector<double> tried(RateSearch& search, double edge) {
  std::vector<double> rates;
  while (const auto rate = search.next()) {
    rates.push_back(*rate);
    search.tell(*rate, *rate <= edge);
    if (rates.size() > 50) break;
  }
  return rates;
}

TEST(RateSearch, EndsWithTwoNeighboursOfTheEdge) {
  for (double edge = 1.01; edge < 8; edge *= 1.07) {
    RateSearch search({"1", "8"}, 0.05);
    const auto rates = tried(search, edge);
    EXPECT_LE(search.held(), edge);
    EXPECT_GT(search.missed(), edge);
    EXPECT_LE(search.missed() / search.held(), 1.0501) << edge;
    EXPECT_LE(rates.size(), 8u);
    EXPECT_EQ(rates[0], 2.83);  // sqrt(8), in three digits
  }
}

TEST(RateSearch, TriesTheFirstThatWasNamed) {
  RateSearch search({"2", "4", "3.3"}, 0.1);
  const auto rates = tried(search, 3);
  EXPECT_EQ(rates[0], 3.3);
  EXPECT_EQ(rates[1], 2.57);  // sqrt(2 x 3.3)
}

TEST(RateSearch, TriesABoundWhenAllOrNothingHolds) {
  RateSearch all({"1", "2"}, 0.2);
  EXPECT_EQ(tried(all, 9).back(), 2);
  EXPECT_EQ(all.held(), 2);
  EXPECT_TRUE(std::isinf(all.missed()));
  RateSearch none({"1", "2"}, 0.2);
  EXPECT_EQ(tried(none, 0).back(), 1);
  EXPECT_EQ(none.held(), 0);
  EXPECT_EQ(none.missed(), 1);
}

TEST(RateSearch, EndsWhereThreeDigitsLeaveNothingBetween) {
  RateSearch search({"1", "1.02"}, 1e-9);
  EXPECT_LT(tried(search, 1.013).size(), 5u);
}

TEST(RateSearch, WrongBoundsAreNamed) {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"1"},
                             {"1", "2", "3", "4"},
                             {"2", "1"},
                             {"1", "inf"},
                             {"0", "1"},
                             {"1", "x"},
                             {"1", "2", "3"},
                             {"1", "2", "0.5"}})
    EXPECT_THROW(RateSearch(words, 0.1), ConfigError) << words.size();
  EXPECT_THROW(RateSearch({"1", "2"}, 0), ConfigError);
}

}  // namespace
}  // namespace tandem::launch
