// SPDX-License-Identifier: Apache-2.0
// The CPU as a device. It is synchronous: work runs where it is enqueued, streams and events do
// nothing, and a graph calls the function that the CUDA graph would capture. So code written for
// overlap and capture is compiled and tested without a GPU.
#pragma once

#include <functional>
#include <utility>

#include "kernels/device/buffer.h"
#include "kernels/device/cpu/page_arena.h"
#include "kernels/device/device.h"
#include "kernels/device/op_timer.h"

namespace tandem {

template <>
class Stream<Cpu> {
 public:
  void synchronize() {}
};

template <>
class Event<Cpu> {
 public:
  void record(Stream<Cpu>&) {}
  /// Later work of `stream` runs after this event.
  void block(Stream<Cpu>&) {}
  /// Blocks the calling thread.
  void synchronize() {}
  bool done() const { return true; }
};

template <>
class Graph<Cpu> {
 public:
  /// Keeps `body`; `launch` calls it.
  static Graph capture(Context<Cpu>&, std::function<void()> body) { return Graph(std::move(body)); }
  Graph() = default;
  void launch(Stream<Cpu>&) { body_(); }
  explicit operator bool() const { return static_cast<bool>(body_); }

 private:
  explicit Graph(std::function<void()> body) : body_(std::move(body)) {}
  std::function<void()> body_;
};

/// Ops run on `threads()` OpenMP threads of the calling process.
template <>
class Context<Cpu> {
 public:
  explicit Context(int num_threads);

  int threads() const { return threads_; }
  Stream<Cpu>& compute() { return stream_; }
  Stream<Cpu>& comm() { return stream_; }
  Stream<Cpu>& copy() { return stream_; }

  /// Memory for weights.
  PageArena& arena() { return arena_; }

  /// Memory of one op, which what it calls does not ask for; valid until the next call.
  std::byte* scratch(std::int64_t size_bytes) {
    if (scratch_.size() < size_bytes) scratch_ = Buffer<std::byte, Cpu>(size_bytes);
    return scratch_.data();
  }

  /// Where ops are recorded, or null.
  Recorder* recorder() const { return recorder_; }
  void record_to(Recorder* recorder) { recorder_ = recorder; }

 private:
  int threads_;
  Recorder* recorder_ = nullptr;
  Stream<Cpu> stream_;
  PageArena arena_;
  Buffer<std::byte, Cpu> scratch_;
};

/// Copies between host and device memory, ordered on the compute stream or on the stream given;
/// synchronous on the CPU.
void copy_to_device(Context<Cpu>& ctx, void* device, const void* host, std::int64_t size_bytes);
void copy_to_host(Context<Cpu>& ctx, void* host, const void* device, std::int64_t size_bytes);
void copy_to_device(Stream<Cpu>& stream, void* device, const void* host, std::int64_t size_bytes);
void copy_to_host(Stream<Cpu>& stream, void* host, const void* device, std::int64_t size_bytes);
void copy_on_device(Context<Cpu>& ctx, void* to, const void* from, std::int64_t size_bytes);
void fill_zero(Context<Cpu>& ctx, void* device, std::int64_t size_bytes);

}  // namespace tandem
