// SPDX-License-Identifier: Apache-2.0
// One measurement of the memory synchronization domain bench: start an aggressor in a chosen
// domain, wait until all its blocks run, time a victim on the compute stream (domain 0), stop the
// aggressor, and check from the blocks' traces that the two did run at the same time on different
// SMs. Used from one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/host_buffer.h"
#include "launch/bench/domains_cuda/domains_kernels.h"

namespace tandem::bench {

enum class Cell { kIdle, kSame, kSeparate };
inline constexpr Cell kCells[] = {Cell::kIdle, Cell::kSame, Cell::kSeparate};

/// Whose memory the aggressor works on, in what way, with how many blocks. With `enqueue` it is
/// something else that is put on the stream and ends by itself, some time after any victim.
struct Aggressor {
  std::string name;
  Traffic traffic = Traffic::kStores;
  int blocks = 0;
  uint4* memory = nullptr;
  std::int64_t block_units = 0;
  std::function<void(Stream<Cuda>&)> enqueue = {};
  double enqueued_bytes = 0;  ///< What `enqueue` moves.
};

/// `enqueue` puts the work between two events on the compute stream; `read` (called when it is
/// done) turns the milliseconds into the victim's value.
struct Victim {
  std::string name, unit;
  std::function<void()> enqueue;
  std::function<double(double milliseconds)> read;
  int domain = 0;  ///< Physical, of its kernels.
  bool traced = true;
};

struct Sample {
  double value = 0;
  double aggressor_gb_per_s = 0;
  bool overlapped = true;  ///< The aggressor ran from before the victim to after it.
  bool apart = true;       ///< The victim's block 0 had an SM without aggressor.
};

class DomainsLab {
 public:
  static constexpr int kMaxBlocks = 64;

  explicit DomainsLab(Context<Cuda>& ctx);
  DomainsLab(const DomainsLab&) = delete;
  DomainsLab& operator=(const DomainsLab&) = delete;

  Context<Cuda>& ctx() { return ctx_; }
  /// Where victims leave the trace of their block 0.
  BlockTrace* victim_trace() const { return traces_.data() + kMaxBlocks; }
  Stream<Cuda>& aggressor_stream() { return aggressor_stream_; }
  /// Puts the aggressor's stream into the victim's domain, or into another one.
  void set_aggressor_domain(Cell cell, int victim_domain = 0);

  Sample measure(const Victim& victim, const Aggressor& aggressor, Cell cell);

 private:
  void start(const Aggressor& aggressor);
  void judge_blocks(const Victim& victim, const Aggressor& aggressor, Sample& sample);

  Context<Cuda>& ctx_;
  Stream<Cuda> aggressor_stream_;
  Event<Cuda> begin_{true}, end_{true}, aggressor_begin_{true}, aggressor_end_{true};
  Buffer<std::uint32_t, Cuda> flags_;  ///< [started, stop]
  Buffer<BlockTrace, Cuda> traces_;    ///< Aggressor blocks, then the victim.
  HostBuffer<BlockTrace, Cuda> host_traces_;
  HostBuffer<std::uint32_t, Cuda> one_;
};

}  // namespace tandem::bench
