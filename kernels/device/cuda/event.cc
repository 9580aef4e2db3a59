// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/event.h"

#include <utility>

#include "kernels/device/cuda/check.h"

namespace tandem {

Event<Cuda>::Event(bool timed) {
  TANDEM_CHECK(
      cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}
Event<Cuda>::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event<Cuda>& Event<Cuda>::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}
Event<Cuda>::~Event() {
  if (event_ != nullptr) TANDEM_CHECK_NOEXCEPT(cudaEventDestroy(event_));
}

void Event<Cuda>::record(Stream<Cuda>& stream) {
  TANDEM_CHECK(cudaEventRecord(event_, stream.handle()));
}
void Event<Cuda>::block(Stream<Cuda>& stream) {
  TANDEM_CHECK(cudaStreamWaitEvent(stream.handle(), event_));
}
void Event<Cuda>::synchronize() { TANDEM_CHECK(cudaEventSynchronize(event_)); }

bool Event<Cuda>::done() const {
  const cudaError_t code = cudaEventQuery(event_);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // Not an error here, but the runtime remembers it as one.
    return false;
  }
  TANDEM_CHECK(code);
  return true;
}

float Event<Cuda>::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  TANDEM_CHECK(cudaEventElapsedTime(&milliseconds, start.event_, event_));
  return milliseconds;
}

}  // namespace tandem
