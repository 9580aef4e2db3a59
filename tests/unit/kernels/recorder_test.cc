// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/recorder.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

/// Making room in the middle of a run would be milliseconds in one step.
TEST(Recorder, SpansStayWhereTheyAre) {
  Recorder recorder(200'000);
  recorder.end(recorder.begin(Activity::kDown));
  const TimeSpan* first = recorder.spans().data();
  for (int i = 1; i < 200'000; ++i) recorder.end(recorder.begin(Activity::kDown));
  EXPECT_EQ(recorder.spans().data(), first);
  EXPECT_EQ(recorder.dropped(), 0);
}

TEST(Recorder, CountsWhatItHasNoRoomFor) {
  Recorder recorder(2);
  for (int i = 0; i < 5; ++i) recorder.end(recorder.begin(Activity::kDown));
  EXPECT_EQ(recorder.spans().size(), 2u);
  EXPECT_EQ(recorder.dropped(), 3);
}

}  // namespace
}  // namespace tandem
