// SPDX-License-Identifier: Apache-2.0
// Device side of `PeerView`: guarded spins, flags, and 16-byte accesses that peers may see. System
// scope throughout: the peer may be another GPU, and its kernel in another memory sync domain.
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/peer_view.h"

namespace tandem::kernels {

struct Words {
  std::uint64_t low, high;
};

/// 8-byte halves are each written and read whole, which is what the push protocol needs.
__device__ __forceinline__ void store_words(void* to, Words words) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(words.low),
               "l"(words.high)
               : "memory");
}
__device__ __forceinline__ Words load_words(const void* from) {
  Words words;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(words.low), "=l"(words.high)
               : "l"(from)
               : "memory");
  return words;
}
/// Of memory that is not shared. As whole words: a `Pack` that lives long is kept in pieces.
__device__ __forceinline__ Words load_whole(const void* from) {
  const ulonglong2 words = *static_cast<const ulonglong2*>(from);
  return {words.x, words.y};
}
__device__ __forceinline__ void store_release(void* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ std::uint32_t load_acquire(const void* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ std::uint64_t global_timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// Counts the polls of one thread. After 1 ms it looks at the error word now and then; once that
/// is set, or was when the kernel began, every wait ends at once and the results mean nothing.
class SpinGuard {
 public:
  __device__ explicit SpinGuard(const PeerView& view)
      : error_word_(view.error_word), limit_ns_(view.spin_limit_ns) {
    broken_ = *static_cast<volatile std::uint32_t*>(error_word_);
  }

  /// Call after a poll that found nothing; true: give up.
  __device__ bool expired() {
    if (broken_ != 0 || (++polls_ & 255u) != 0) return broken_ != 0;
    const std::uint64_t now = global_timer_ns();
    if (start_ns_ == 0) start_ns_ = now;
    const std::uint64_t waited = now - start_ns_;
    if (waited < 1'000'000) return false;
    volatile std::uint32_t* word = error_word_;
    if (waited > limit_ns_) *word = 1;
    broken_ = *word;
    return broken_ != 0;
  }

 private:
  std::uint32_t* error_word_;
  std::uint64_t limit_ns_, start_ns_ = 0;
  std::uint32_t polls_ = 0;
  std::uint32_t broken_;  ///< As loaded: only the first `expired` waits for the load.
};

/// 0 is never used: memory starts as 0. Successors have alternating parity.
__device__ __forceinline__ std::uint32_t epoch_after(std::uint32_t last) {
  return last == 0xffffffffu ? 2u : last + 1u;
}
/// The number of this call of a family, for this block.
__device__ __forceinline__ std::uint32_t next_epoch(const PeerView& view, PeerFamily family) {
  const volatile std::uint32_t* epochs = view.epochs + static_cast<int>(family) * kPeerBlocks;
  return epoch_after(epochs[blockIdx.x]);
}
/// By one thread, after a block-wide sync behind the last use of the epoch.
__device__ __forceinline__ void finish_epoch(const PeerView& view, PeerFamily family,
                                             std::uint32_t epoch) {
  view.epochs[static_cast<int>(family) * kPeerBlocks + static_cast<int>(blockIdx.x)] = epoch;
}

/// Block b of every rank waits for block b of all others; what its threads wrote before, to any
/// rank's memory, is visible to them after.
__device__ __forceinline__ void peer_block_barrier(const PeerView& view, int flag_set,
                                                   std::uint32_t epoch, SpinGuard& guard) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < view.size && peer != view.rank) {
    store_release(view.peers[peer] + PeerLayout::flag(flag_set, blockIdx.x, view.rank), epoch);
    const std::byte* flag = view.peers[view.rank] + PeerLayout::flag(flag_set, blockIdx.x, peer);
    // A fast peer may already be one call ahead.
    while (static_cast<std::int32_t>(load_acquire(flag) - epoch) < 0 && !guard.expired()) {
    }
  }
  __syncthreads();
}

template <typename E>
__device__ __forceinline__ Words to_words(const Pack<E>& pack) {
  return *reinterpret_cast<const Words*>(&pack);
}
template <typename E>
__device__ __forceinline__ Pack<E> to_pack(const Words& words) {
  return *reinterpret_cast<const Pack<E>*>(&words);
}

/// sum = first, or sum += value; in rank order this is the one order all ranks use.
template <typename E>
__device__ __forceinline__ void accumulate(float* sum, const Pack<E>& pack, bool first) {
#pragma unroll
  for (int i = 0; i < Pack<E>::kSize; ++i) {
    const float value = to_float(pack.values[i]);
    sum[i] = first ? value : sum[i] + value;
  }
}
template <typename E>
__device__ __forceinline__ Pack<E> round_pack(const float* sum) {
  if constexpr (sizeof(E) == 2) {  // Two in one instruction; one by one takes a slower unit.
    const auto four = [sum](int i) {
      return std::uint64_t{pack2<E>(sum[i + 2], sum[i + 3])} << 32 | pack2<E>(sum[i], sum[i + 1]);
    };
    return to_pack<E>(Words{four(0), four(4)});
  } else {
    Pack<E> pack;
#pragma unroll
    for (int i = 0; i < Pack<E>::kSize; ++i) pack.values[i] = from_float<E>(sum[i]);
    return pack;
  }
}

/// 16 bytes of data as the push protocol stores them: 4 of them and the epoch in every 8 bytes.
struct MarkedWords {
  Words first, second;
};
__device__ __forceinline__ MarkedWords mark_words(Words words, std::uint32_t epoch) {
  const std::uint64_t mark = static_cast<std::uint64_t>(epoch) << 32;
  return {{(words.low & 0xffffffffu) | mark, (words.low >> 32) | mark},
          {(words.high & 0xffffffffu) | mark, (words.high >> 32) | mark}};
}
__device__ __forceinline__ bool is_marked(Words first, Words second, std::uint32_t epoch) {
  return (first.low >> 32) == epoch && (first.high >> 32) == epoch && (second.low >> 32) == epoch &&
         (second.high >> 32) == epoch;
}
__device__ __forceinline__ Words unmark_words(Words first, Words second) {
  return {(first.low & 0xffffffffu) | (first.high << 32),
          (second.low & 0xffffffffu) | (second.high << 32)};
}
/// The halves lie `apart` bytes from each other.
__device__ __forceinline__ void store_marked(std::byte* to, const MarkedWords& marked,
                                             std::int64_t apart = 16) {
  store_words(to, marked.first);
  store_words(to + apart, marked.second);
}

/// Puts 16 bytes into the push region of every peer. `to` is the offset of their place there.
__device__ __forceinline__ void push_words(const PeerView& view, std::int64_t to, Words words,
                                           std::uint32_t epoch) {
  const MarkedWords marked = mark_words(words, epoch);
#pragma unroll 1
  for (int step = 1; step < view.size; ++step) {
    // Every rank begins with another peer, so that no one's links are hit by all at once.
    const int sum = view.rank + step;
    store_marked(view.peers[sum < view.size ? sum : sum - view.size] + to, marked,
                 PeerLayout::kPushApart);
  }
}

/// Waits for the pack of every other rank in the push region and calls `use(r, words)` for all
/// ranks in order, this rank's own `own` included. `from(r)` is the address of rank r's part. The
/// loads of four ranks are in flight together; more would not fit the registers. Halves lie
/// `kApart` bytes from each other.
template <std::int64_t kApart = 16, int kMost = kMaxPeers, typename From, typename Use>
__device__ __forceinline__ void poll_words(const PeerView& view, std::uint32_t epoch, Words own,
                                           SpinGuard& guard, const From& from, const Use& use) {
  if constexpr (kMost == 2) {
    if (view.size < 2) return use(0, own);
    const std::byte* at = from(1 - view.rank);
    Words first, second;
    do {
      first = load_words(at);
      second = load_words(at + kApart);
    } while (!is_marked(first, second, epoch) && !guard.expired());
    const Words arrived = unmark_words(first, second);
    use(0, view.rank == 0 ? own : arrived);
    use(1, view.rank == 1 ? own : arrived);
    return;
  }
  constexpr int kGroup = 4;
#pragma unroll
  for (int begin = 0; begin < kMost; begin += kGroup) {
    if (begin >= view.size) return;
    Words first[kGroup], second[kGroup];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int r = begin + i;
        if (r >= view.size || r == view.rank) continue;
        first[i] = load_words(from(r));
        second[i] = load_words(from(r) + kApart);
      }
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int r = begin + i;
        if (r >= view.size || r == view.rank) continue;
        ready = ready && is_marked(first[i], second[i], epoch);
      }
    } while (!ready && !guard.expired());
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int r = begin + i;
      if (r >= view.size) continue;
      const Words arrived = unmark_words(first[i], second[i]);
      use(r, r == view.rank ? own : arrived);
    }
  }
}

/// An exchange of the sums of a matmul, as one of its blocks takes part in it: all blocks count
/// exchanges, and which half of the workspaces one uses follows from its number.
struct SumsExchange {
  PeerView peers;
  std::byte* own;            ///< This rank's workspace.
  std::uint64_t* pushed_at;  ///< Gets the GPU's clock when sums are on their way, or null.
  std::uint32_t epoch;

  SumsExchange() = default;
  SumsExchange(const PeerView& view, std::uint64_t* pushed)
      : peers(view), own(view.peers[view.rank]), pushed_at(pushed), epoch(0) {}

  /// The epoch is the kernel's before: it can be read when that one is done.
  __device__ void start() {
    epoch = epoch_after(*const_cast<const volatile std::uint32_t*>(epoch_word()));
  }
  /// Offset in every workspace of the words of a rank.
  __device__ std::int64_t words_of(int source) const {
    return PeerLayout{peers.size}.sums(epoch & 1, source);
  }
  /// By one thread, behind a sync with all that have started.
  __device__ void finish() const { *epoch_word() = epoch; }

 private:
  __device__ std::uint32_t* epoch_word() const { return peers.sums_epochs + blockIdx.x; }
};

}  // namespace tandem::kernels
