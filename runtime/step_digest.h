// SPDX-License-Identifier: Apache-2.0
// A running hash of all that a rank was told and all that it sampled: ranks on the same path have
// equal digests after the same step. Those of the last steps are kept, because ranks compare them
// while later steps are on their way. Plain value, one caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace tandem::runtime {

class StepDigest {
 public:
  /// Plans come in order of their steps 0, 1, ...; outputs in the same order, some steps later.
  void add_plan(std::span<const std::byte> bytes);
  void add_output(const StepOutput& output);

  /// After one of the last kKept finished steps.
  std::uint64_t after(std::int64_t step) const;

 private:
  static constexpr std::int64_t kKept = 4;
  std::int64_t finished_ = -1;             ///< Last finished step.
  std::deque<std::uint64_t> plan_hashes_;  ///< Of the steps after it.
  std::array<std::uint64_t, kKept> digests_{};
};

/// Ranks whose text is not that of most ranks (in a tie: not that of the lowest rank of the tie).
std::vector<int> odd_ranks(const std::vector<std::string>& texts);

}  // namespace tandem::runtime
