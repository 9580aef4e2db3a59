// SPDX-License-Identifier: Apache-2.0
// What one rank recorded, as it is sent to rank 0 for the report: times are already on rank 0's
// clock. Plain values; `serialize` and `deserialize_rank_log` are exact inverses between ranks that
// run the same program.
#pragma once

#include <string>
#include <vector>

#include "kernels/device/recorder.h"

namespace tandem::runtime {

/// The fastest a rank can read memory and multiply; what floors are made of. 0: not known.
struct RankCeilings {
  double read_gb_per_s = 0, matmul_tflops = 0;
};

struct RankLog {
  int rank = 0;
  std::string host, device;
  bool synchronous = true;  ///< Ops ran on the step thread (CPU), so all spans nest.
  RankCeilings ceilings;
  double clock_uncertainty_us = 0;  ///< Of this rank's times on rank 0's clock.
  std::int64_t dropped = 0;         ///< Spans that did not fit into the recorder.
  std::vector<StepRecord> steps;
  std::vector<TimeSpan> spans;
};

std::string serialize(const RankLog& log);
/// InternalError when the bytes are not what `serialize` makes.
RankLog deserialize_rank_log(const std::string& bytes);

}  // namespace tandem::runtime
