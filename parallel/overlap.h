// SPDX-License-Identifier: Apache-2.0
// Communication under computation: two halves of a step's tokens take turns, so that the sum of
// one half over the ranks runs on the comm stream while the other half computes. Written once over
// the device, over callables; where streams are synchronous the same calls run one after the other.
// Two-batch overlap as in DeepSeek-V3 (arXiv 2412.19437, section 3.4) and Domino (arXiv
// 2409.15241).
#pragma once

#include <array>

#include "kernels/device/op_timer.h"

namespace tandem::parallel {

/// Owns the events of one pass; used again by every step, from the step thread.
template <Device D>
class OverlapSchedule {
 public:
  /// Per stage s and half h, in this order: `compute(s, h)` enqueues on the compute stream and
  /// leaves partial sums, `reduce(s, h)` enqueues their sum over ranks on the comm stream,
  /// `finish(s, h)` enqueues on the compute stream what needs the sum. Before `finish(s, h)` the
  /// other half's `compute` of the same stage, or of the next one, was enqueued: it runs beside the
  /// sum. Work of stage s + 1 may read what both halves left before their sums in stage s only
  /// through `compute(s, 0)` and earlier. On return the compute stream waits for all sums.
  template <typename Compute, typename Reduce, typename Finish>
  void run(Context<D>& ctx, int stages, Compute&& compute, Reduce&& reduce, Finish&& finish) {
    for (int stage = 0; stage <= stages; ++stage)
      for (const int which : {0, 1}) {
        const auto h = static_cast<std::size_t>(which);
        if (stage > 0) {
          {  // What is recorded is the wait that the other half did not hide.
            const OpTimer timer(ctx, Activity::kAllReduce, [] { return OpWork{}; });
            reduced_[h].block(ctx.compute());
          }
          finish(stage - 1, which);
        }
        if (stage == stages) continue;
        compute(stage, which);
        computed_[h].record(ctx.compute());
        computed_[h].block(ctx.comm());
        reduce(stage, which);
        reduced_[h].record(ctx.comm());
      }
  }

 private:
  std::array<Event<D>, 2> computed_, reduced_;
};

}  // namespace tandem::parallel
