// SPDX-License-Identifier: Apache-2.0
#include "comm/termination_signal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

namespace tandem::comm {
namespace {

bool readable(int descriptor) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

void (*handler_now())(int) {
  struct sigaction now {};
  ::sigaction(SIGTERM, nullptr, &now);
  return now.sa_handler;
}

TEST(TerminationSignal, TurnsTheSignalIntoAReadableDescriptor) {
  TerminationSignal signal;
  EXPECT_FALSE(readable(signal.descriptor()));
  EXPECT_FALSE(signal.take());
  ::raise(SIGTERM);
  ::raise(SIGTERM);
  EXPECT_TRUE(readable(signal.descriptor()));
  EXPECT_TRUE(signal.take());
  EXPECT_FALSE(signal.take());
}

TEST(TerminationSignal, GivesTheSignalBack) {
  { const TerminationSignal signal; }
  EXPECT_EQ(handler_now(), SIG_DFL);
  EXPECT_EXIT(::raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
}

TEST(TerminationSignal, LeavesTheHandlersOfOthersAlone) {
  ::signal(SIGTERM, SIG_IGN);  // followers of the server
  {
    TerminationSignal signal;
    ::raise(SIGTERM);
    EXPECT_FALSE(signal.take());
  }
  EXPECT_EQ(handler_now(), SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
  {
    const TerminationSignal signal;
    ::signal(SIGTERM, SIG_IGN);  // taken over while the watchdog runs
  }
  EXPECT_EQ(handler_now(), SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
}

}  // namespace
}  // namespace tandem::comm
