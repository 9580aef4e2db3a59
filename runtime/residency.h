// SPDX-License-Identifier: Apache-2.0
// The slots and cache chunks of running sequences: taken at admission, extended while decoding,
// given back behind the last plan that names them. Chunks come from the free ones, then from
// growth of the cache, then from cached prefixes that nobody uses. Each change is written into the
// plan under construction. Host only, one caller (the scheduler).
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/chunk_pool.h"
#include "kvcache/prefix_index.h"
#include "runtime/batch_plan.h"
#include "runtime/engine.h"
#include "runtime/sequence.h"

namespace tandem::runtime {

class Residency {
 public:
  Residency(const EngineLimits& limits, bool prefix_caching);

  /// Gives the sequence a slot and chunks for all its tokens, sharing what the cache holds: the
  /// prompt of `source` (a running sample of the same request whose prompt but its last token is
  /// in the cache) or else the longest indexed prefix, never the last token. `reserve` chunks stay
  /// obtainable for the others. False, with nothing changed, when there is not enough.
  bool admit(Sequence& sequence, Sequence* source, std::int32_t reserve, BatchPlan& plan);

  /// Makes sure that position `planned` has a chunk; false when there is none to be had.
  bool extend(Sequence& sequence, BatchPlan& plan);

  /// Takes slot and chunks away; others get them once `last_step` is committed.
  void vacate(Sequence& sequence);

  /// Step `step` and all before it are finished.
  void commit(std::int64_t step);

  /// The KV of the first `num_tokens` tokens is computed by plans made so far: full chunks of
  /// known tokens become known to other sequences.
  void publish(Sequence& sequence, std::int32_t num_tokens);

  /// Grows the cache, while it can, until `chunks` are free.
  void keep_free(std::int32_t chunks);

  std::int32_t returning_chunks() const { return returning_chunks_; }
  /// Changes whenever something was given back: a refused `admit` may succeed.
  std::int64_t version() const { return version_; }

  std::int32_t mapped() const { return pool_.mapped(); }
  std::int32_t used() const { return pool_.num_used() - index_.num_evictable(); }
  std::int32_t cached() const { return index_.num_cached(); }
  std::int64_t queried_tokens() const { return queried_tokens_; }
  std::int64_t hit_tokens() const { return hit_tokens_; }

 private:
  struct Leaving {
    std::int64_t last_step = 0;
    std::int32_t slot = 0;
    std::vector<std::int32_t> chunks;
  };
  struct Shared {
    std::vector<std::int32_t> chunks;  ///< Retained.
    kvcache::PrefixIndex::NodeId node = kvcache::PrefixIndex::kRoot;
    std::int32_t tokens = 0;     ///< In the cache already, those of a copied chunk included.
    std::int32_t copy_from = 0;  ///< Chunk whose front is to be copied, or 0.
  };

  Shared share_sibling(const Sequence& source);
  Shared share_prefix(const Sequence& sequence);
  std::int32_t allocate();
  std::int32_t obtainable() const { return pool_.num_obtainable() + index_.num_evictable(); }
  void release(const std::vector<std::int32_t>& chunks);
  void give_back(const Leaving& leaving);

  bool prefix_caching_;
  kvcache::ChunkPool pool_;
  kvcache::PrefixIndex index_;
  std::vector<std::int32_t> free_slots_;
  std::vector<Leaving> leaving_;
  std::int32_t returning_chunks_ = 0;
  std::int64_t committed_ = -1, version_ = 0;
  std::int64_t queried_tokens_ = 0, hit_tokens_ = 0;
};

}  // namespace tandem::runtime
