// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_digest.h"

#include <algorithm>
#include <cstring>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  hash = mix(hash, bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    hash = mix(hash, word);
  }
  return hash;
}

}  // namespace

void StepDigest::add_plan(std::span<const std::byte> bytes) {
  plan_hashes_.push_back(hash_bytes(0, bytes));
}

void StepDigest::add_output(const StepOutput& output) {
  TANDEM_ASSERT(!plan_hashes_.empty() && output.step == finished_ + 1, "output of step ",
                output.step, " after step ", finished_);
  const std::uint64_t before =
      mix(digests_[finished_ < 0 ? 0 : finished_ % kKept], plan_hashes_.front());
  plan_hashes_.pop_front();
  ++finished_;
  digests_[finished_ % kKept] = hash_bytes(before, std::as_bytes(std::span(output.tokens)));
}

std::uint64_t StepDigest::after(std::int64_t step) const {
  TANDEM_ASSERT(0 <= step && step <= finished_ && step > finished_ - kKept, "digest of step ", step,
                " after step ", finished_);
  return digests_[step % kKept];
}

std::vector<int> odd_ranks(const std::vector<std::string>& texts) {
  const auto votes = [&](const std::string& text) {
    return std::count(texts.begin(), texts.end(), text);
  };
  const auto common =
      std::max_element(texts.begin(), texts.end(),
                       [&](const auto& a, const auto& b) { return votes(a) < votes(b); });
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank] != *common) odd.push_back(static_cast<int>(rank));
  }
  return odd;
}

}  // namespace tandem::runtime
