// SPDX-License-Identifier: Apache-2.0
// Records ops and phases where they are called. Without a recorder each call is one branch: what an
// op has to do at least is asked for (by calling `work`) only when somebody records.
#pragma once

#include <utility>

#include "kernels/device/device.h"
#include "kernels/device/recorder.h"

namespace tandem {

/// Times ops where they ran: trivial on the CPU, stamps of the GPU's clock on CUDA.
template <Device D>
class Stamps;

/// Ops that run one after the other on the compute stream: each `start` ends the one before.
/// On CUDA it enqueues stamps, which a capture records like any other work.
template <Device D>
class OpTimer {
 public:
  explicit OpTimer(Context<D>& ctx) : recorder_(ctx.recorder()) {}
  /// `work()` returns the op's OpWork.
  template <typename Work>
  OpTimer(Context<D>& ctx, Activity activity, Work&& work) : recorder_(ctx.recorder()) {
    start(activity, std::forward<Work>(work));
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;
  ~OpTimer() { stop(); }

  template <typename Work>
  void start(Activity activity, Work&& work) {
    if (recorder_ == nullptr) return;
    stop();
    span_ = recorder_->begin(activity, work());
  }
  void stop() {
    if (span_ == Recorder::kNone) return;
    recorder_->end(span_);
    span_ = Recorder::kNone;
  }

 private:
  decltype(std::declval<Context<D>&>().recorder()) recorder_;
  std::int64_t span_ = Recorder::kNone;
};

/// A phase of the step thread. `recorder` may be null.
class PhaseScope {
 public:
  PhaseScope(Recorder* recorder, Activity activity)
      : recorder_(recorder), span_(recorder == nullptr ? 0 : recorder->begin(activity)) {}
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope() {
    if (recorder_ != nullptr) recorder_->end(span_);
  }

 private:
  Recorder* recorder_;
  std::int64_t span_;
};

}  // namespace tandem
