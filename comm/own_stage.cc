// SPDX-License-Identifier: Apache-2.0
#include "comm/own_stage.h"

namespace tandem::comm {
namespace {

/// A step that takes so long is looked into. Less than any deadline of a step.
constexpr double kLongForADevice_s = 0.5;

}  // namespace

void OwnStage::update(const Progress& progress, TimePoint now, RankState& own) {
  const Stage stage = progress.read();
  if (stage.sequence != sequence_) {
    sequence_ = stage.sequence;
    since_ = now;
  }
  own.kind = stage.kind;
  own.stage = describe(stage);
  own.stage_age_s = std::chrono::duration<double>(now - since_).count();
}

void OwnStage::update_position(WatchedDevice& device, RankState& own) const {
  if (own.kind == StageKind::kDevice && own.stage_age_s > kLongForADevice_s) {
    own.position = device.position();
    return;
  }
  if (own.position) device.forget_position();
  own.position.reset();
}

}  // namespace tandem::comm
