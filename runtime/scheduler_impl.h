// SPDX-License-Identifier: Apache-2.0
// The scheduler's state and the steps of making one plan (scheduler_plan.cc) and of queueing and
// committing (scheduler.cc). Siblings of one request: those that run always came before those that
// wait, because admission takes the oldest and preemption the youngest.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/residency.h"
#include "runtime/scheduler.h"
#include "runtime/sequence.h"

namespace tandem::runtime {

using SequencePtr = std::shared_ptr<Sequence>;

struct ByOrder {
  bool operator()(const SequencePtr& a, const SequencePtr& b) const { return a->order < b->order; }
};

/// What `commit` needs to know of a plan: one row per sample, in sample order.
struct PlannedStep {
  std::int64_t step = 0;
  std::vector<std::pair<SequencePtr, std::int32_t>> rows;    ///< (sequence, position)
  std::vector<std::pair<SequencePtr, std::int32_t>> scores;  ///< (sequence, number of scored rows)
};

struct Scheduler::Impl {
  explicit Impl(SchedulerConfig c)
      : config(std::move(c)), residency(config.limits, config.prefix_caching) {}

  void plan_decodes(BatchPlan& plan);
  void limit_prefill(const BatchPlan& plan);
  void plan_prefills(BatchPlan& plan);
  void plan_admissions(BatchPlan& plan);
  bool can_prefill() const { return budget > 0 && (!work_left || *work_left >= 1); }
  double token_work(std::int32_t position) const;
  void add_segment(const SequencePtr& sequence, BatchPlan& plan);
  void add_scores(const SequencePtr& sequence, PrefillSegment& segment);
  void add_sample(const SequencePtr& sequence, std::int32_t position, BatchPlan& plan);
  void finalise(BatchPlan& plan);

  bool make_room(const SequencePtr& sequence, BatchPlan& plan);
  void preempt(const SequencePtr& sequence);
  Sequence* running_sibling(const Sequence& sequence) const;
  void end(const SequencePtr& sequence);
  void forget_if_ended(RequestId request);
  void receive_scores(const PlannedStep& step, const StepOutput& output);
  TokenEvent receive(Sequence& sequence, std::int32_t position, const StepOutput& output,
                     std::size_t row);

  SchedulerConfig config;
  Residency residency;
  std::map<RequestId, std::vector<SequencePtr>> requests;  ///< With a sample that has not ended.
  std::set<SequencePtr, ByOrder> waiting;
  std::vector<SequencePtr> running;  ///< In order of arrival.
  std::deque<PlannedStep> in_flight;
  std::int64_t next_order = 0, next_step = 0, preemptions = 0;

  // Of the plan under construction.
  PlannedStep current;
  std::vector<std::pair<SequencePtr, std::int32_t>> advances;  ///< (sequence, new `planned`)
  std::int32_t budget = 0;                                     ///< Token rows left.
  /// Prompt tokens left to a step with decode rows, in tokens at the start of a context.
  std::optional<double> work_left;
  std::int32_t stalled = 0;  ///< Sequences that wait for a chunk that is coming back.
  bool preempted = false;

  // The head of the queue that did not fit, and the residency version at which it did not.
  const Sequence* refused = nullptr;
  std::int64_t refused_at = -1;
};

}  // namespace tandem::runtime
