// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/device/error.h"
#include "runtime/scheduler_impl.h"

namespace tandem::runtime {

BatchPlan Scheduler::plan() {
  Impl& impl = *impl_;
  BatchPlan plan;
  plan.step = impl.next_step;
  impl.current = {plan.step, {}, {}};
  impl.advances.clear();
  impl.budget = impl.config.limits.max_num_batched_tokens;
  impl.stalled = 0;
  impl.preempted = false;

  impl.plan_decodes(plan);
  impl.limit_prefill(plan);
  impl.plan_prefills(plan);
  impl.plan_admissions(plan);
  impl.finalise(plan);
  return plan;
}

void Scheduler::Impl::plan_decodes(BatchPlan& plan) {
  // Preemption shortens `running` from its end, so the index stays right.
  for (std::size_t i = 0; i < running.size() && budget > 0; ++i) {
    const SequencePtr sequence = running[i];
    if (!sequence->can_decode() || !make_room(sequence, plan)) continue;
    const std::int32_t position = sequence->planned;
    TANDEM_ASSERT(position + 1 == sequence->num_tokens() + sequence->in_flight,
                  "decode row at position ", position, " of a sequence of ", sequence->num_tokens(),
                  " tokens and ", sequence->in_flight, " in flight");
    plan.decode_slots.push_back(sequence->slot);
    --budget;
    advances.emplace_back(sequence, position + 1);
    add_sample(sequence, position, plan);
  }
}

/// Decode rows wait for the step's prompt tokens: a mixed step takes few of them, fewer the longer
/// their context is (Agrawal et al. 2024, arXiv 2403.02310), but at least a quarter of its rows,
/// and whole tiles of attention where there is room for one.
void Scheduler::Impl::limit_prefill(const BatchPlan& plan) {
  const std::int32_t rows = config.limits.mixed_step_tokens;
  const auto decode = static_cast<std::int32_t>(plan.decode_slots.size());
  work_left.reset();
  if (rows > 0 && decode > 0) work_left = mixed_prompt_tokens(rows, decode);
}

double Scheduler::Impl::token_work(std::int32_t position) const {
  const std::int32_t equal = config.limits.attention_equal_tokens;
  return equal > 0 ? 1.0 + static_cast<double>(position) / equal : 1.0;
}

void Scheduler::Impl::plan_prefills(BatchPlan& plan) {
  for (std::size_t i = 0; i < running.size() && can_prefill(); ++i) {
    if (running[i]->prefilling()) add_segment(running[i], plan);
  }
}

void Scheduler::Impl::plan_admissions(BatchPlan& plan) {
  while (can_prefill() && !preempted && !waiting.empty()) {
    const SequencePtr sequence = *waiting.begin();
    if (sequence->in_flight > 0) return;  // Preempted; its last token is part of its prompt.
    if (sequence.get() == refused && residency.version() == refused_at) return;
    Sequence* source = sequence->fresh() ? running_sibling(*sequence) : nullptr;
    if (source != nullptr && source->planned < source->num_prompt() - 1) return;
    // What the running ones may need soon, but no more than a small part of a small cache.
    const auto reserve = static_cast<std::int32_t>(std::min<std::size_t>(
        running.size(), 1 + static_cast<std::size_t>(config.limits.num_chunks) / 32));
    if (!residency.admit(*sequence, source, reserve, plan)) {
      refused = sequence.get();
      refused_at = residency.version();
      return;
    }
    refused = nullptr;
    waiting.erase(waiting.begin());
    sequence->state = Sequence::State::kRunning;
    running.insert(std::upper_bound(running.begin(), running.end(), sequence, ByOrder()), sequence);
    add_segment(sequence, plan);
  }
}

void Scheduler::Impl::add_segment(const SequencePtr& sequence, BatchPlan& plan) {
  const std::int32_t begin = sequence->planned;
  std::int32_t count = std::min(sequence->prefill_end - begin, budget);
  if (work_left) {
    const double work = token_work(begin);
    const auto rows = static_cast<std::int32_t>(*work_left);
    const auto fits = static_cast<std::int32_t>(*work_left / work);
    const std::int32_t tile = config.limits.prefill_tile_tokens;
    count = std::min(count, std::max(fits / tile * tile, std::min(rows, tile)));
    *work_left -= count * work;
  }
  const std::int32_t end = begin + count;
  budget -= count;
  PrefillSegment segment;
  segment.slot = sequence->slot;
  segment.begin = begin;
  segment.tokens.assign(sequence->tokens.begin() + begin, sequence->tokens.begin() + end);
  segment.sample = end == sequence->prefill_end;
  add_scores(sequence, segment);
  sequence->last_step = plan.step;
  plan.max_kv_tokens = std::max(plan.max_kv_tokens, end);
  advances.emplace_back(sequence, end);
  if (segment.sample) add_sample(sequence, end - 1, plan);
  plan.segments.push_back(std::move(segment));
}

/// A row is scored once, also when preemption makes it be computed again.
void Scheduler::Impl::add_scores(const SequencePtr& sequence, PrefillSegment& segment) {
  if (!sequence->wants_scores()) return;
  const std::int32_t first = std::max(segment.begin, sequence->scored);
  const std::int32_t end = std::min(
      segment.begin + static_cast<std::int32_t>(segment.tokens.size()), sequence->num_prompt() - 1);
  if (end <= first) return;
  segment.score_begin = first - segment.begin;
  segment.score_targets.assign(sequence->tokens.begin() + first + 1,
                               sequence->tokens.begin() + end + 1);
  sequence->scored = end;
  current.scores.emplace_back(sequence, end - first);
}

void Scheduler::Impl::add_sample(const SequencePtr& sequence, std::int32_t position,
                                 BatchPlan& plan) {
  ++sequence->in_flight;
  sequence->last_step = plan.step;
  current.rows.emplace_back(sequence, position);
  plan.max_kv_tokens = std::max(plan.max_kv_tokens, position + 1);
  plan.logprobs = plan.logprobs || sequence->request->params.logprobs.has_value();
  if (sequence->wants_full_row()) plan.sample_mode = SampleMode::kFull;
  plan.process_logits = plan.process_logits || sequence->wants_processing(position);
}

void Scheduler::Impl::finalise(BatchPlan& plan) {
  // Only now, so that within a plan every decision sees the state that earlier plans left.
  for (const auto& [sequence, planned] : advances) {
    sequence->planned = planned;
    if (planned <= sequence->prefill_end) residency.publish(*sequence, planned);
  }
  // Every running sequence may cross a chunk border in the next step: map ahead of that.
  residency.keep_free(static_cast<std::int32_t>(running.size()) + 1);
  plan.mapped_chunks = residency.mapped();
  if (plan.num_tokens() == 0) return;
  ++next_step;
  in_flight.push_back(std::move(current));
}

bool Scheduler::Impl::make_room(const SequencePtr& sequence, BatchPlan& plan) {
  while (!residency.extend(*sequence, plan)) {
    if (residency.returning_chunks() > stalled) {
      ++stalled;
      return false;
    }
    const SequencePtr victim = running.back();
    preempt(victim);
    if (victim == sequence) return false;
  }
  return true;
}

void Scheduler::Impl::preempt(const SequencePtr& sequence) {
  ++preemptions;
  preempted = true;
  residency.vacate(*sequence);
  running.erase(std::find(running.begin(), running.end(), sequence));
  sequence->state = Sequence::State::kWaiting;
  waiting.insert(sequence);
}

Sequence* Scheduler::Impl::running_sibling(const Sequence& sequence) const {
  if (sequence.sample == 0) return nullptr;
  for (const SequencePtr& sibling : requests.at(sequence.request->id)) {
    if (sibling->state == Sequence::State::kRunning) return sibling.get();
  }
  return nullptr;
}

}  // namespace tandem::runtime
