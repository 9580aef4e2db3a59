// SPDX-License-Identifier: Apache-2.0
#include "runtime/residency.h"

#include <algorithm>
#include <span>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

constexpr std::int32_t kC = kernels::kChunkTokens;

std::int32_t chunks_for(std::int32_t tokens) { return (tokens + kC - 1) / kC; }

}  // namespace

Residency::Residency(const EngineLimits& limits, bool prefix_caching)
    : prefix_caching_(prefix_caching),
      pool_(limits.mapped_chunks, limits.num_chunks, limits.growth_chunks),
      index_(pool_) {
  for (std::int32_t slot = limits.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

bool Residency::admit(Sequence& sequence, Sequence* source, std::int32_t reserve, BatchPlan& plan) {
  if (free_slots_.empty()) return false;
  Shared shared = source != nullptr ? share_sibling(*source) : share_prefix(sequence);
  const std::int32_t total = chunks_for(sequence.num_tokens());
  const auto hits = static_cast<std::int32_t>(shared.chunks.size());
  if (obtainable() < total - hits + reserve) {
    release(shared.chunks);
    return false;
  }
  queried_tokens_ += sequence.num_tokens();
  hit_tokens_ += shared.tokens;

  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence.chunks = std::move(shared.chunks);
  while (static_cast<std::int32_t>(sequence.chunks.size()) < total) {
    sequence.chunks.push_back(allocate());
  }
  sequence.planned = shared.tokens;
  sequence.prefill_end = sequence.num_tokens();
  sequence.indexed_chunks = hits;
  sequence.prefix_node = shared.node;

  SlotInit init;
  init.slot = sequence.slot;
  init.params = sequence.params;
  init.logit_bias = static_bias(sequence.request->params);
  init.allowed = sequence.request->params.allowed_token_ids;
  init.bad_words = long_bad_words(sequence.request->params);
  init.history.assign(sequence.tokens.begin(), sequence.tokens.begin() + shared.tokens);
  plan.inits.push_back(std::move(init));
  for (std::int32_t i = 0; i < total; ++i) {
    plan.assigns.push_back({sequence.slot, i, sequence.chunks[i]});
  }
  if (shared.copy_from != 0) {
    plan.chunk_copies.push_back({shared.copy_from, sequence.chunks[hits]});
    source->last_step = plan.step;
  }
  return true;
}

Residency::Shared Residency::share_sibling(const Sequence& source) {
  Shared shared;
  shared.tokens = source.num_prompt() - 1;
  const std::int32_t full = shared.tokens / kC;
  if (shared.tokens % kC != 0) shared.copy_from = source.chunks[full];
  if (prefix_caching_) {
    auto match = index_.match(source.tokens, full);
    shared.chunks = std::move(match.chunks);
    shared.node = match.node;
  }
  if (static_cast<std::int32_t>(shared.chunks.size()) < full) {
    shared.node = kvcache::PrefixIndex::kLost;
    for (auto i = static_cast<std::int32_t>(shared.chunks.size()); i < full; ++i) {
      pool_.retain(source.chunks[i]);
      shared.chunks.push_back(source.chunks[i]);
    }
  }
  return shared;
}

Residency::Shared Residency::share_prefix(const Sequence& sequence) {
  Shared shared;
  if (!prefix_caching_ || sequence.wants_scores()) return shared;
  auto match = index_.match(sequence.tokens, (sequence.num_tokens() - 1) / kC);
  shared.tokens = static_cast<std::int32_t>(match.chunks.size()) * kC;
  shared.chunks = std::move(match.chunks);
  shared.node = match.node;
  return shared;
}

bool Residency::extend(Sequence& sequence, BatchPlan& plan) {
  const std::int32_t index = sequence.planned / kC;
  if (index < static_cast<std::int32_t>(sequence.chunks.size())) return true;
  if (obtainable() == 0) return false;
  sequence.chunks.push_back(allocate());
  plan.assigns.push_back({sequence.slot, index, sequence.chunks.back()});
  return true;
}

void Residency::vacate(Sequence& sequence) {
  Leaving leaving{sequence.last_step, sequence.slot, std::move(sequence.chunks)};
  sequence.slot = -1;
  sequence.chunks.clear();
  sequence.planned = 0;
  sequence.prefill_end = 0;
  if (leaving.last_step <= committed_) {
    give_back(leaving);
  } else {
    returning_chunks_ += static_cast<std::int32_t>(leaving.chunks.size());
    leaving_.push_back(std::move(leaving));
  }
}

void Residency::commit(std::int64_t step) {
  committed_ = step;
  std::erase_if(leaving_, [this](const Leaving& leaving) {
    if (leaving.last_step > committed_) return false;
    returning_chunks_ -= static_cast<std::int32_t>(leaving.chunks.size());
    give_back(leaving);
    return true;
  });
}

void Residency::publish(Sequence& sequence, std::int32_t num_tokens) {
  if (!prefix_caching_) return;
  while (sequence.prefix_node != kvcache::PrefixIndex::kLost &&
         (sequence.indexed_chunks + 1) * kC <= num_tokens) {
    const std::int32_t i = sequence.indexed_chunks++;
    sequence.prefix_node =
        index_.insert(sequence.prefix_node,
                      std::span(sequence.tokens).subspan(static_cast<std::size_t>(i) * kC, kC),
                      sequence.chunks[i]);
  }
}

void Residency::keep_free(std::int32_t chunks) {
  while (pool_.num_free() < chunks && pool_.grow()) {
  }
}

std::int32_t Residency::allocate() {
  while (true) {
    if (const auto chunk = pool_.allocate()) return *chunk;
    if (pool_.grow()) continue;
    const bool evicted = index_.evict();
    TANDEM_ASSERT(evicted, "no chunk left although some were counted as obtainable");
  }
}

void Residency::release(const std::vector<std::int32_t>& chunks) {
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) index_.release(*chunk);
}

void Residency::give_back(const Leaving& leaving) {
  ++version_;
  release(leaving.chunks);
  free_slots_.push_back(leaving.slot);
}

}  // namespace tandem::runtime
