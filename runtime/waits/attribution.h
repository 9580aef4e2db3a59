// SPDX-License-Identifier: Apache-2.0
// Where each rank's time went, step by step, from the logs of all ranks. A step of a rank lasts
// from the end of its last op of the step before to the end of its last op, and every instant of it
// is given to exactly one row:
//   an op                with the others of its activity: compute up to their floor (their bytes or
//                        operations at the rank's ceiling); of what they took longer: the ends of
//                        their kernels at what one cost around each are fences, attention's waits
//                        for tiles are tiles, the rest is `above`
//   stamps (GPUs)        one end of a kernel, seen by itself: fences, which measuring adds
//   a collective         the smallest wait over ranks for the same collective is its transfer, what
//                        this rank waited longer is skew: no clock is compared for that
//   waiting for a plan   what rank 0 did meanwhile
//   no span at all       unexplained
// Plain functions and values.
#pragma once

#include <string>
#include <vector>

#include "runtime/waits/rank_log.h"

namespace tandem::runtime {

enum class WaitRow : std::uint8_t {
  kFloor,
  kAbove,
  kTiles,
  kFences,
  kTransfer,
  kSkew,
  kLaunch,
  kMapping,
  kHost,
  kIdle,
  kUnexplained,
  kCount
};
inline constexpr int kNumWaitRows = static_cast<int>(WaitRow::kCount);

/// The row's key in JSON, for example "rank_skew".
const char* key(WaitRow row);

/// Time of one row, spent in or because of one activity.
struct WaitCell {
  WaitRow row = WaitRow::kUnexplained;
  Activity activity = Activity::kCount;  ///< kCount: none.
  double ns = 0;
};

/// One step of one rank. The cells add up to `end_ns - begin_ns`.
struct AttributedStep {
  StepRecord record;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<WaitCell> cells;
  double ns(WaitRow row) const;
  double ns(WaitRow row, Activity activity) const;
};

/// How often a rank came last to the collectives, of those that made another rank wait.
struct Arrivals {
  std::int64_t last = 0, collectives = 0;
};

struct Attribution {
  std::vector<std::vector<AttributedStep>> steps;  ///< By rank; the same steps on every rank.
  std::vector<Arrivals> arrivals;                  ///< By rank.
};

/// `logs` by rank, all on rank 0's clock. Steps that some rank did not record are left out.
Attribution attribute(const std::vector<RankLog>& logs);

}  // namespace tandem::runtime
