// SPDX-License-Identifier: Apache-2.0
// Owns one CUDA event. Recorded and waited for by streams, also inside a capture (that is how the
// comm stream joins it). Without timing unless asked for: such events are cheaper. Move-only.
#pragma once

#include "kernels/device/cuda/stream.h"

namespace tandem {

template <>
class Event<Cuda> {
 public:
  Event() : Event(false) {}
  explicit Event(bool timed);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  void record(Stream<Cuda>& stream);
  /// Later work of `stream` runs after this event.
  void block(Stream<Cuda>& stream);
  /// Blocks the calling thread; an event never recorded counts as done.
  void synchronize();
  bool done() const;
  /// Milliseconds from `start` to this event; both timed and done.
  float milliseconds_since(const Event& start) const;
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tandem
