// SPDX-License-Identifier: Apache-2.0
// Measures the turns of an engine loop: where the step thread's time goes, and whether the device
// had work all the time. Calls come in the order of a turn: begin, submit, collect, end, each of
// the middle ones at most once. One thread; `times` is a plain value to copy.
#pragma once

#include <chrono>

#include "runtime/duration_histogram.h"

namespace tandem::runtime {

/// Where the step thread of rank 0 spends the time of a step.
struct StepTimes {
  DurationHistogram host;    ///< Requests in, planning, broadcast, tokens to their sinks.
  DurationHistogram submit;  ///< In the engine: enqueueing; of a synchronous engine, the step.
  DurationHistogram wait;    ///< For tokens. Long is good: the device is the one that works.
  /// At most so long the device had nothing to do before a step: 0 when the step before was still
  /// running, else the time since the tokens of the one before that came. Not of synchronous ones.
  DurationHistogram idle;
  std::int64_t late_steps = 0;  ///< Those with `idle` above 0.
};

/// `Clock` is another one in tests.
template <typename Clock>
class BasicStepClock {
 public:
  void begin_turn() {
    turn_ = {};
    turn_.begun = Clock::now();
  }

  template <typename Work>
  void submit(Work work) {
    const auto begun = Clock::now();
    turn_.idle_since = std::max(collected_, submitted_);
    work();
    submitted_ = Clock::now();
    turn_.submit_s = seconds(begun, submitted_);
  }

  template <typename Work>
  void collect(Work work) {
    const auto begun = Clock::now();
    work();
    collected_ = Clock::now();
    turn_.wait_s = seconds(begun, collected_);
  }

  void end_turn(bool synchronous) {
    const bool submitted = turn_.submit_s >= 0, waited = turn_.wait_s >= 0;
    times_.host.add(seconds(turn_.begun, Clock::now()) - std::max(turn_.submit_s, 0.0) -
                    std::max(turn_.wait_s, 0.0));
    if (submitted) times_.submit.add(turn_.submit_s);
    if (waited) times_.wait.add(turn_.wait_s);
    if (!submitted || !waited || synchronous) return;
    // Tokens that are there at once: their step had ended before this one was given.
    const bool late = turn_.wait_s < kNoWait_s;
    times_.idle.add(late ? seconds(turn_.idle_since, submitted_) : 0.0);
    times_.late_steps += late ? 1 : 0;
  }

  const StepTimes& times() const { return times_; }

 private:
  static constexpr double kNoWait_s = 5e-6;

  static double seconds(typename Clock::time_point begin, typename Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }

  struct Turn {
    typename Clock::time_point begun, idle_since;
    double submit_s = -1, wait_s = -1;  ///< -1: it did not happen.
  } turn_;
  typename Clock::time_point submitted_, collected_;
  StepTimes times_;
};

using StepClock = BasicStepClock<std::chrono::steady_clock>;

}  // namespace tandem::runtime
