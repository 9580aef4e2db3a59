// SPDX-License-Identifier: Apache-2.0
#include "launch/server/worker.h"

#include <utility>

namespace tandem::launch {

Worker::Worker() : thread_([this] { loop(); }) {}

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  filled_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  filled_.notify_one();
}

void Worker::loop() {
  while (true) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
  }
}

}  // namespace tandem::launch
