// SPDX-License-Identifier: Apache-2.0
// Which all-reduce a message takes: by its size, from a table that rank 0 measures (or these
// defaults) and that is equal on all ranks, or forced by `--all-reduce`. Plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::comm {

/// `--all-reduce=auto|oneshot|twoshot|nccl`
enum class AllReduceChoice : std::uint8_t { kAuto, kOneShot, kTwoShot, kNccl };

/// ConfigError for any other word.
AllReduceChoice parse_all_reduce(std::string_view text);
std::string_view name(AllReduceChoice choice);

/// Largest messages, in bytes, of the own algorithms; NCCL takes what is larger.
struct AllReduceTable {
  std::int64_t push_bytes = 0, pull_bytes = 0, two_shot_bytes = 0;
  bool operator==(const AllReduceTable&) const = default;
};

/// What a message costs by each way, microseconds; infinity: the way cannot take it.
struct AllReduceTiming {
  std::int64_t size_bytes = 0;
  double push_us = 0, pull_us = 0, two_shot_us = 0, nccl_us = 0;
};

/// The fastest way by size, as thresholds; `timings` by growing size. An own way wins a tie within
/// 3 %, so that noise does not make the table differ from run to run.
AllReduceTable choose_table(const std::vector<AllReduceTiming>& timings);

/// For NVLink-connected H200s: from published measurements and two of our own at 2 ranks.
AllReduceTable default_all_reduce_table(int ranks);

}  // namespace tandem::comm
