// SPDX-License-Identifier: Apache-2.0
// One thread that runs what it is given, in order. What is still queued when it stops is dropped.
// `run` may be called from any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tandem::launch {

class Worker {
 public:
  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { stop(); }

  /// Waits for what runs now; drops what is queued and what comes later.
  void stop();

  void run(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tandem::launch
