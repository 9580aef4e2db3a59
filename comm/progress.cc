// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.h"

#include "kernels/device/error.h"

namespace tandem::comm {

std::string describe(const Stage& stage) {
  std::string text;
  if (stage.step >= 0) text = concat("step ", stage.step, ", ");
  text += stage.what;
  if (stage.layer >= 0) text += concat(", layer ", stage.layer);
  return text;
}

// A sequence lock with one writer (Boehm, "Can seqlocks get along with programming language memory
// models?", MSPC 2012): the data are relaxed atomics between two fences.
void Progress::begin() noexcept {
  sequence_.store(sequence_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

void Progress::end() noexcept {
  sequence_.store(sequence_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Progress::enter(StageKind kind, const char* what) noexcept {
  begin();
  kind_.store(kind, std::memory_order_relaxed);
  what_.store(what, std::memory_order_relaxed);
  end();
}

void Progress::set_step(std::int64_t step) noexcept {
  begin();
  step_.store(step, std::memory_order_relaxed);
  end();
}

void Progress::set_layer(int layer) noexcept {
  begin();
  layer_.store(layer, std::memory_order_relaxed);
  end();
}

void Progress::touch() noexcept {
  begin();
  end();
}

Stage Progress::read() const noexcept {
  while (true) {
    const std::uint64_t before = sequence_.load(std::memory_order_acquire);
    const Stage stage{kind_.load(std::memory_order_relaxed), what_.load(std::memory_order_relaxed),
                      step_.load(std::memory_order_relaxed), layer_.load(std::memory_order_relaxed),
                      before / 2};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return stage;
  }
}

}  // namespace tandem::comm
