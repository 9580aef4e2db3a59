// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

TEST(StopMatcher, HoldsBackWhatMayStillStop) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_EQ(matcher.push(" <"), " ");
  EXPECT_EQ(matcher.push("/e"), "");
  EXPECT_EQ(matcher.push("x<"), "</ex");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("</en"), "<");
  EXPECT_EQ(matcher.push("d>behind"), "");
  EXPECT_EQ(matcher.matched(), 0u);
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, FinishGivesTheRest) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("a sto"), "a ");
  EXPECT_EQ(matcher.finish(), "sto");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, IncludesTheStopString) {
  StopMatcher matcher({"\n\n"}, true);
  EXPECT_EQ(matcher.push("a\n"), "a");
  EXPECT_EQ(matcher.push("\nb"), "\n\n");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, RestartsInsideAPartialMatch) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aaaa"), "aa");
  EXPECT_EQ(matcher.push("b"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, FirstEndWinsThenTheLongest) {
  StopMatcher first({"abcd", "bc"});
  EXPECT_EQ(first.push("xabcd"), "xa");
  EXPECT_EQ(first.matched(), 1u);
  StopMatcher longest({"c", "abc", "bc"});
  EXPECT_EQ(longest.push("xabc"), "x");
  EXPECT_EQ(longest.matched(), 1u);
}

TEST(StopMatcher, WorksInsideCharacters) {
  StopMatcher matcher({"\xE2\x82\xAC"});  // The euro sign in three pieces.
  EXPECT_EQ(matcher.push("1\xE2"), "1");
  EXPECT_EQ(matcher.push("\x82"), "");
  EXPECT_EQ(matcher.push("\xB9\xE2\x82"), "\xE2\x82\xB9");  // It was the rupee sign.
  EXPECT_EQ(matcher.push("\xAC!"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, WithoutStopsPassesAll) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_THROW(StopMatcher({"a", ""}), ConfigError);
}

/// Against a search in the whole text, whatever the cuts.
TEST(StopMatcher, EqualsSearchInTheWholeText) {
  std::mt19937 random(7);
  const auto word = [&](std::size_t max) {
    std::string text(random() % max + 1, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> stops{word(5), word(6), word(7)};
    const std::string text = word(40);
    std::size_t best_end = std::string::npos, best_begin = std::string::npos;
    for (const std::string& stop : stops) {
      const std::size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      const std::size_t end = begin + stop.size();
      if (best_end == std::string::npos || end < best_end ||
          (end == best_end && begin < best_begin)) {
        best_end = end;
        best_begin = begin;
      }
    }
    StopMatcher matcher(stops);
    std::string emitted;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = random() % 4 + 1;
      emitted += matcher.push(std::string_view(text).substr(at, length));
      at += length;
    }
    emitted += matcher.finish();
    EXPECT_EQ(emitted, text.substr(0, best_begin));
    EXPECT_EQ(matcher.stopped(), best_begin != std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::runtime
