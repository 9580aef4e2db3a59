// SPDX-License-Identifier: Apache-2.0
// The arrays that one step's kernels read, at fixed device addresses, so that captured graphs stay
// valid. `upload` stages a plan's rows; a decode step with the same rows as the step before it
// uploads nothing, because tokens and positions come from the slots. Used by the step thread.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/device/host_buffer.h"
#include "kernels/step.h"
#include "runtime/batch_plan.h"
#include "runtime/engine.h"
#include "runtime/step_cut.h"

namespace tandem::runtime {

template <Device D>
class StepInputs {
 public:
  explicit StepInputs(const EngineLimits& limits)
      : seqs_(limits.max_num_seqs),
        tokens_(limits.max_num_batched_tokens),
        head_(6 * std::int64_t{seqs_} + 3),
        token_ids_(tokens_),
        positions_(tokens_),
        row_slots_(tokens_),
        score_rows_(tokens_),
        score_targets_(tokens_) {
    for (auto& staging : staging_)
      staging = HostBuffer<std::int32_t, D>(head_.size() + 5 * tokens_);
  }

  /// Stages the plan's rows with `num_decode` decode rows (padding rows have slot -1).
  /// `max_kv_tokens` bounds every row's KV length. False: they are the rows of the step before, and
  /// nothing is uploaded.
  bool upload(Context<D>& ctx, const BatchPlan& plan, std::int32_t num_decode,
              std::int32_t max_kv_tokens) {
    std::vector<std::int32_t> rows(plan.decode_slots);
    rows.resize(static_cast<std::size_t>(num_decode), -1);
    const StepCut cut = cut_step(num_decode, plan.segments);
    describe(plan, num_decode, max_kv_tokens);
    describe_halves(cut);
    if (plan.segments.empty() && rows == uploaded_rows_) return false;
    turn_ ^= 1;
    std::int32_t* host = staging_[turn_].data();
    std::copy(rows.begin(), rows.end(), host);
    fill_samples(plan, rows, host);
    for (const std::size_t which : {0u, 1u})
      std::copy(cut.segment_begin[which].begin(), cut.segment_begin[which].end(),
                host + half_begins(which));
    copy_to_device(ctx, head_.data(), host, head_.size() * 4);
    if (!plan.segments.empty()) upload_prefill(ctx, plan, num_decode);
    uploaded_rows_ = plan.segments.empty() ? rows : std::vector<std::int32_t>{-2};
    return true;
  }

  kernels::StepView<D> view() const { return view_; }
  /// The step's rows; the halves are there for steps with segments only.
  StepRows<D> rows() const { return {{view_, 0}, halves_, false}; }
  kernels::SampleView<D> samples() const {
    return {num_samples_, head_.data() + seqs_, head_.data() + 2 * seqs_};
  }
  /// Rows whose next prompt token is scored, and these tokens; `count` of each.
  struct Scores {
    std::int32_t count = 0;
    const std::int32_t* rows = nullptr;
    const std::int32_t* targets = nullptr;
  };
  Scores scores() const { return {num_scores_, score_rows_.data(), score_targets_.data()}; }
  /// What ends the step; decode rows are left as the same sequences' next step has them.
  kernels::EndStepArgs<D> end(const kernels::SlotView<D>& slots) const {
    kernels::EndStepArgs<D> end;
    end.samples = samples();
    end.positions = positions_.data();
    end.slots = slots;
    if (view_.num_segments > 0) return end;
    end.next_tokens = token_ids_.data();
    end.next_positions = positions_.data();
    return end;
  }
  kernels::BeginStepArgs<D> begin(const kernels::SlotView<D>& slots) const {
    return {view_.num_decode,  head_.data(),      slots,           token_ids_.data(),
            positions_.data(), row_slots_.data(), view_.num_tokens};
  }

 private:
  /// The host's knowledge of the step.
  void describe(const BatchPlan& plan, std::int32_t num_decode, std::int32_t max_kv_tokens) {
    view_ = {};
    view_.num_decode = num_decode;
    view_.num_tokens = num_decode + plan.num_prefill_tokens();
    view_.num_segments = static_cast<std::int32_t>(plan.segments.size());
    for (const PrefillSegment& segment : plan.segments)
      view_.max_segment_tokens =
          std::max(view_.max_segment_tokens, static_cast<std::int32_t>(segment.tokens.size()));
    view_.max_kv_tokens = max_kv_tokens;
    view_.token_ids = token_ids_.data();
    view_.positions = positions_.data();
    view_.slots = row_slots_.data();
    view_.segment_begin = head_.data() + 3 * seqs_;
    num_samples_ = num_decode;
    for (const PrefillSegment& segment : plan.segments) num_samples_ += segment.sample ? 1 : 0;
    num_scores_ = plan.num_scores();
  }

  /// Where the first rows of a half's segments lie in `head_`.
  std::int64_t half_begins(std::size_t which) const {
    return 4 * std::int64_t{seqs_} + 1 + static_cast<std::int64_t>(which) * (seqs_ + 1);
  }

  void describe_halves(const StepCut& cut) {
    for (const std::size_t which : {0u, 1u}) {
      const std::int32_t first = which == 0 ? 0 : cut.row;
      kernels::StepView<D> step = view_;
      step.num_tokens = which == 0 ? cut.row : view_.num_tokens - cut.row;
      step.num_decode = which == 0 ? view_.num_decode : 0;
      step.num_segments = static_cast<std::int32_t>(cut.segment_begin[which].size()) - 1;
      step.max_segment_tokens = cut.longest[which];
      step.token_ids += first;
      step.positions += first;
      step.slots += first;
      step.segment_begin = head_.data() + half_begins(which);
      halves_[which] = {step, first};
    }
  }

  /// Rows and slots of the samples, and the segments' first rows.
  void fill_samples(const BatchPlan& plan, const std::vector<std::int32_t>& rows,
                    std::int32_t* host) const {
    std::int32_t* sample_rows = host + seqs_;
    std::int32_t* sample_slots = host + 2 * seqs_;
    std::int32_t* segment_begin = host + 3 * seqs_;
    std::int32_t row = 0, sample = 0;
    for (const std::int32_t slot : rows) {
      sample_rows[sample] = row++;
      sample_slots[sample++] = std::max(slot, 0);
    }
    for (const PrefillSegment& segment : plan.segments) {
      *segment_begin++ = row;
      row += static_cast<std::int32_t>(segment.tokens.size());
      if (!segment.sample) continue;
      sample_rows[sample] = row - 1;
      sample_slots[sample++] = segment.slot;
    }
    *segment_begin = row;
  }

  void upload_prefill(Context<D>& ctx, const BatchPlan& plan, std::int32_t num_decode) {
    std::int32_t* ids = staging_[turn_].data() + head_.size();
    std::int32_t* positions = ids + tokens_;
    std::int32_t* slots = positions + tokens_;
    std::int64_t count = 0;
    for (const PrefillSegment& segment : plan.segments)
      for (std::size_t i = 0; i < segment.tokens.size(); ++i, ++count) {
        ids[count] = segment.tokens[i];
        positions[count] = segment.begin + static_cast<std::int32_t>(i);
        slots[count] = segment.slot;
      }
    copy_to_device(ctx, token_ids_.data() + num_decode, ids, count * 4);
    copy_to_device(ctx, positions_.data() + num_decode, positions, count * 4);
    copy_to_device(ctx, row_slots_.data() + num_decode, slots, count * 4);
    if (num_scores_ > 0) upload_scores(ctx, plan, num_decode, slots + tokens_);
  }

  void upload_scores(Context<D>& ctx, const BatchPlan& plan, std::int32_t first_row,
                     std::int32_t* rows) {
    std::int32_t* targets = rows + tokens_;
    std::int32_t count = 0;
    for (const PrefillSegment& segment : plan.segments) {
      for (std::size_t i = 0; i < segment.score_targets.size(); ++i, ++count) {
        rows[count] = first_row + segment.score_begin + static_cast<std::int32_t>(i);
        targets[count] = segment.score_targets[i];
      }
      first_row += static_cast<std::int32_t>(segment.tokens.size());
    }
    copy_to_device(ctx, score_rows_.data(), rows, std::int64_t{count} * 4);
    copy_to_device(ctx, score_targets_.data(), targets, std::int64_t{count} * 4);
  }

  std::int32_t seqs_, tokens_;
  /// Decode slots, sample rows, sample slots, segment begins, segment begins of either half.
  Buffer<std::int32_t, D> head_;
  Buffer<std::int32_t, D> token_ids_, positions_, row_slots_, score_rows_, score_targets_;
  std::array<HostBuffer<std::int32_t, D>, 2> staging_;
  int turn_ = 0;
  std::vector<std::int32_t> uploaded_rows_{-2};
  kernels::StepView<D> view_;
  std::array<StepPart<D>, 2> halves_;
  std::int32_t num_samples_ = 0, num_scores_ = 0;
};

}  // namespace tandem::runtime
