// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce_choice.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

/// Largest size up to which `wins` holds for every timing from `begin_bytes` on.
template <typename Wins>
std::int64_t threshold(const std::vector<AllReduceTiming>& timings, std::int64_t begin_bytes,
                       const Wins& wins) {
  std::int64_t last = 0;
  for (const AllReduceTiming& timing : timings) {
    if (timing.size_bytes <= begin_bytes) continue;
    if (!wins(timing)) break;
    last = timing.size_bytes;
  }
  return last;
}

}  // namespace

AllReduceChoice parse_all_reduce(std::string_view text) {
  for (const auto choice : {AllReduceChoice::kAuto, AllReduceChoice::kOneShot,
                            AllReduceChoice::kTwoShot, AllReduceChoice::kNccl})
    if (text == name(choice)) return choice;
  throw ConfigError(concat("--all-reduce=", text,
                           " is not known: use --all-reduce=auto, oneshot, twoshot or nccl"));
}

std::string_view name(AllReduceChoice choice) {
  switch (choice) {
    case AllReduceChoice::kOneShot:
      return "oneshot";
    case AllReduceChoice::kTwoShot:
      return "twoshot";
    case AllReduceChoice::kNccl:
      return "nccl";
    case AllReduceChoice::kAuto:
      break;
  }
  return "auto";
}

AllReduceTable choose_table(const std::vector<AllReduceTiming>& timings) {
  constexpr double kTie = 1.03;
  AllReduceTable table;
  table.push_bytes = threshold(timings, 0, [](const AllReduceTiming& t) {
    return t.push_us <= kTie * std::min({t.pull_us, t.two_shot_us, t.nccl_us});
  });
  table.pull_bytes = threshold(timings, table.push_bytes, [](const AllReduceTiming& t) {
    return t.pull_us <= kTie * std::min(t.two_shot_us, t.nccl_us);
  });
  table.two_shot_bytes =
      threshold(timings, std::max(table.push_bytes, table.pull_bytes),
                [](const AllReduceTiming& t) { return t.two_shot_us <= kTie * t.nccl_us; });
  return table;
}

AllReduceTable default_all_reduce_table(int ranks) {
  constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
  if (ranks <= 2) return {128 * kKiB, 4 * kMiB, 4 * kMiB};
  if (ranks <= 4) return {64 * kKiB, 512 * kKiB, 4 * kMiB};
  return {24 * kKiB, 256 * kKiB, 4 * kMiB};
}

}  // namespace tandem::comm
