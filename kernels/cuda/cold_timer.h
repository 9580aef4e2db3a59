// SPDX-License-Identifier: Apache-2.0
// Times candidates for an op as a step finds it: with weights that come from memory, not from L2.
// Blocks; never inside of a capture.
#pragma once

#include <functional>
#include <optional>

#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/event.h"

namespace tandem::kernels {

class ColdTimer {
 public:
  explicit ColdTimer(Context<Cuda>& ctx);
  /// Median of a few runs of what `body` enqueues on the compute stream, after one that warms up.
  /// Nothing as soon as it returns false: it could not.
  std::optional<float> median_us(const std::function<bool()>& body);

 private:
  Context<Cuda>& ctx_;
  Temporary flush_;
  Event<Cuda> start_{true}, stop_{true};
};

}  // namespace tandem::kernels
