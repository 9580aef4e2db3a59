// SPDX-License-Identifier: Apache-2.0
#include "launch/job_options.h"

#include <gtest/gtest.h>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

using Words = std::vector<std::string>;

TEST(JobOptions, AreTakenOutOfTheWords) {
  Words words{"generate",   "--interface", "ib0",      "--model", "m",          "--step-timeout=0",
              "--log-rank", "all",         "--prompt", "a=b",     "--cpu-bind", "keep"};
  const JobOptions options = take_job_options(words);
  EXPECT_EQ(words, (Words{"generate", "--model", "m", "--prompt", "a=b"}));
  EXPECT_EQ(options.interfaces, "ib0");
  EXPECT_EQ(options.step_timeout_s, 0);
  EXPECT_EQ(options.log_rank, -1);
  EXPECT_TRUE(options.keep_binding);
}

TEST(JobOptions, DefaultsAndWordsAfterTheDashes) {
  Words words{"x", "--", "--log-rank", "1"};
  EXPECT_EQ(take_job_options(words).log_rank, 0);
  EXPECT_EQ(words.size(), 4u);
}

TEST(JobOptions, WrongValuesAreRefused) {
  for (const Words& wrong :
       {Words{"--log-rank", "-1"}, Words{"--log-rank=x"}, Words{"--step-timeout", "soon"},
        Words{"--step-timeout=-1"}, Words{"--cpu-bind=yes"}, Words{"--interface"}}) {
    Words words = wrong;
    EXPECT_THROW(take_job_options(words), ConfigError) << wrong[0];
  }
}

TEST(JobOptions, RanksWithAFileOfTheirOwnAllLog) {
  std::vector<std::string> words{"--log-file", "log.%r"};
  EXPECT_EQ(take_job_options(words).log_rank, -1);
  words = {"--log-file", "log.%r", "--log-rank", "2"};
  EXPECT_EQ(take_job_options(words).log_rank, 2);
  words = {"--log-file", "log"};
  EXPECT_EQ(take_job_options(words).log_rank, 0);
}

TEST(JobOptions, AnInterfaceThatIsNotThereIsRefused) {
  require_interface("", "a");
  require_interface("nope0,lo", "a");
  try {
    require_interface("nope0", "a");
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("--interface nope0: host a has no such network; use one of: "), 0u) << text;
    EXPECT_NE(text.find("lo"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tandem::launch
