// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "launch/bench/domains_data.h"

namespace tandem::bench {
namespace {

std::vector<double> around(double value, double noise) {
  return {value - 2 * noise, value - noise, value, value + noise, value + 2 * noise};
}

DomainsPair pair(double idle, double same, double separate, double noise) {
  DomainsPair result;
  result.victim = "fence <system>";
  result.aggressor = "peer stores x8";
  result.unit = "us";
  result.idle = around(idle, noise);
  result.same = around(same, noise);
  result.separate = around(separate, noise);
  return result;
}

TEST(DomainsVerdict, ShareRemovedOnlyWhereThereIsAnEffect) {
  const DomainsVerdict clear = judge(pair(4, 14, 5, 0.1));
  EXPECT_TRUE(clear.effect);
  EXPECT_NEAR(clear.spread, 0.1, 1e-9);
  EXPECT_NEAR(clear.removed, 0.9, 1e-9);
  // Twice the idle time, but the repeats differ by as much.
  const DomainsVerdict noisy = judge(pair(4, 8, 5, 2));
  EXPECT_FALSE(noisy.effect);
  EXPECT_EQ(noisy.removed, 0);
}

TEST(DomainsSvg, SaysWhatWasSeen) {
  DomainsData data;
  data.pairs = {pair(4, 14, 5, 0.1), pair(4, 4.1, 4, 1)};
  const std::string svg = domains_svg(data, "NVIDIA H200");
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  EXPECT_NE(svg.find("NVIDIA H200"), svg.npos);
  EXPECT_NE(svg.find("fence &lt;system> (us)"), svg.npos);
  EXPECT_NE(svg.find("beside peer stores x8"), svg.npos);
  EXPECT_NE(svg.find("removed 90 %"), svg.npos);
  EXPECT_NE(svg.find("no effect seen"), svg.npos);
  EXPECT_EQ(svg.find("http", svg.find("http") + 1), svg.npos) << "no external resources";
}

}  // namespace
}  // namespace tandem::bench
