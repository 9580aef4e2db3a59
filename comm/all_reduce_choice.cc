// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce_choice.h"

#include "kernels/device/error.h"

namespace tandem::comm {

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

AllReduceTable default_all_reduce_table(int ranks) {
  constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
  if (ranks <= 2) return {128 * kKiB, 4 * kMiB, 4 * kMiB};
  if (ranks <= 4) return {64 * kKiB, 512 * kKiB, 4 * kMiB};
  return {24 * kKiB, 256 * kKiB, 4 * kMiB};
}

}  // namespace tandem::comm
