// SPDX-License-Identifier: Apache-2.0
// Kernels of the memory synchronization domain bench: aggressors that keep many writes or reads of
// one kind in flight until they are told to stop, victims whose time depends on fences (explicit
// ones, or those at the end of every kernel), and two kernels that pass messages. All launches are
// asynchronous; the domain is that of the stream at the launch.
#pragma once

#include <cstdint>

#include "kernels/device/cuda/context.h"

namespace tandem::bench {

enum class Traffic : std::uint8_t { kStores, kLoads, kPollAndStore };

/// Where and when one block ran. Times are of the GPU's global timer, in ns.
struct BlockTrace {
  std::uint64_t begin_ns, end_ns, iterations;
  std::uint32_t sm;
};

inline constexpr int kAggressorThreads = 512;

struct AggressorArgs {
  Traffic traffic = Traffic::kStores;
  int blocks = 1;
  uint4* memory = nullptr;              ///< Local, of a peer, or pinned on the host.
  std::int64_t block_units = 0;         ///< 16-byte units of each block's part, a multiple of 512.
  std::uint32_t* started = nullptr;     ///< Counts running blocks; device memory.
  const std::uint32_t* stop = nullptr;  ///< Device memory: polling it is no traffic of the kind.
  BlockTrace* traces = nullptr;         ///< [blocks]
};

/// Brings all kernels onto the GPU. A first launch loads its kernel, which may wait for kernels
/// that run: one that waits for the very kernel that is being loaded would never end.
void load_domains_kernels();

/// 16 bytes a thread and iteration, no fences. Ends by itself after two seconds.
void launch_aggressor(Stream<Cuda>& stream, const AggressorArgs& args);
/// Holds the compute stream until `blocks` aggressor blocks run.
void launch_gate(Context<Cuda>& ctx, const std::uint32_t* started, int blocks);

/// Victim kernels. Block 0 leaves a trace; `trace` may be null.
/// Writes 128 bytes with one warp. `remote` runs it in the stream's remote domain.
void launch_tiny(Context<Cuda>& ctx, std::uint32_t* to, BlockTrace* trace, bool remote = false);
/// Ends with `size_bytes` of written lines that nobody has read.
void launch_dirty(Context<Cuda>& ctx, uint4* to, std::int64_t size_bytes, BlockTrace* trace);
/// Reads `size_bytes` and writes a few: the shape of a decode matmul.
void launch_read(Context<Cuda>& ctx, const uint4* from, std::int64_t size_bytes, std::uint32_t* to,
                 BlockTrace* trace);

enum class FenceScope : std::uint8_t { kDevice, kSystem };
/// `rounds` times: a store, a fence. Cycles of each fence go to `cycles` [blocks * rounds].
void launch_fences(Context<Cuda>& ctx, FenceScope scope, int blocks, int rounds, std::uint32_t* to,
                   std::uint32_t* cycles, BlockTrace* trace);
/// `rounds` barriers over the grid, each a device-scope release and acquire; `counter` is zero.
void launch_grid_barriers(Context<Cuda>& ctx, int blocks, int rounds, std::uint32_t* counter,
                          BlockTrace* trace);

struct MessageArgs {
  FenceScope scope = FenceScope::kSystem;
  int rounds = 0;
  std::int64_t words = 0;                 ///< Of one message, a multiple of 256.
  std::uint32_t* data = nullptr;          ///< [words]
  std::uint32_t* flag = nullptr;          ///< Device memory, zero
  std::uint32_t* acknowledged = nullptr;  ///< Device memory, zero
  unsigned long long* stale = nullptr;    ///< Words that were read before they arrived.
};
/// All threads of a block write a message, one releases the flag; they wait for the answer.
void launch_sender(Stream<Cuda>& stream, const MessageArgs& args);
void launch_receiver(Context<Cuda>& ctx, const MessageArgs& args);

}  // namespace tandem::bench
