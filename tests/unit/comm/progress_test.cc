// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.h"

#include <gtest/gtest.h>

#include <thread>

namespace tandem::comm {
namespace {

TEST(Progress, DescribesStepStageAndLayer) {
  Progress progress;
  EXPECT_EQ(describe(progress.read()), "starting");
  progress.enter(StageKind::kCollective, "all-reduce");
  progress.set_step(123);
  progress.set_layer(7);
  EXPECT_EQ(describe(progress.read()), "step 123, all-reduce, layer 7");
  progress.set_layer(-1);
  EXPECT_EQ(describe(progress.read()), "step 123, all-reduce");
}

TEST(Progress, EveryPublicationIsProgress) {
  Progress progress;
  const auto before = progress.read().sequence;
  progress.touch();
  EXPECT_EQ(progress.read().sequence, before + 1);
  progress.enter(StageKind::kStep, "mlp");
  EXPECT_EQ(progress.read().sequence, before + 2);
}

TEST(Progress, ScopeRestoresTheStageBefore) {
  Progress progress;
  progress.enter(StageKind::kStep, "mlp");
  {
    const StageScope scope(&progress, StageKind::kIdle, "waiting");
    EXPECT_EQ(progress.read().kind, StageKind::kIdle);
  }
  EXPECT_EQ(progress.read().kind, StageKind::kStep);
  EXPECT_STREQ(progress.read().what, "mlp");
  const StageScope none(nullptr, StageKind::kIdle, "waiting");
}

TEST(Progress, ReadersNeverSeeHalfAStage) {
  Progress progress;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop; ++i)
      i % 2 == 0 ? progress.enter(StageKind::kIdle, "idle")
                 : progress.enter(StageKind::kStep, "step");
  });
  int torn = 0;
  for (int i = 0; i < 200000; ++i) {
    const Stage stage = progress.read();
    if (stage.kind == StageKind::kLoad) continue;
    torn += (stage.kind == StageKind::kIdle) != (std::string_view(stage.what) == "idle");
  }
  stop = true;
  writer.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace tandem::comm
