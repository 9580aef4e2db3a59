// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine_loop.h"

#include <algorithm>
#include <string>

#include "kernels/device/error.h"
#include "kernels/device/op_timer.h"

namespace tandem::runtime {
namespace {

constexpr std::int64_t kDigestSteps = 64;  ///< Steps between two comparisons of the ranks.

}  // namespace

EngineLoop::EngineLoop(comm::ControlPlane& control, Engine& engine, SchedulerConfig config)
    : control_(control), engine_(engine), config_(std::move(config)), scheduler_(config_) {
  stats_.scheduler = scheduler_.stats();
}

RequestId EngineLoop::submit(Request request, Sink sink) {
  request.id = next_id_.fetch_add(1);
  check_request(request, config_);
  const RequestId id = request.id;
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.requests.emplace_back(std::move(request), std::move(sink));
  }
  inbox_filled_.notify_one();
  return id;
}

void EngineLoop::cancel(RequestId request) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.cancels.push_back({request, std::nullopt});
  }
  inbox_filled_.notify_one();
}

void EngineLoop::cancel(RequestId request, std::int32_t sample) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.cancels.push_back({request, sample});
  }
  inbox_filled_.notify_one();
}

void EngineLoop::stop() {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.stop = true;
  }
  inbox_filled_.notify_one();
}

template <typename Work>
void EngineLoop::guarded(Work work) {
  try {
    work();
  } catch (const ConfigError&) {
    throw;  // all ranks throw it
  } catch (const std::exception& error) {
    control_.fault(error.what());
    throw;
  }
}

void EngineLoop::run_until_idle() {
  while (take_inbox() && !scheduler_.idle()) guarded([this] { turn(); });
  publish(comm::StageKind::kIdle, "between requests");
}

void EngineLoop::run() {
  while (take_inbox()) {
    if (!scheduler_.idle()) {
      guarded([this] { turn(); });
      continue;
    }
    publish(comm::StageKind::kIdle, "waiting for requests");
    const PhaseScope idle(recorder_, Activity::kIdle);
    std::unique_lock lock(inbox_mutex_);
    inbox_filled_.wait(lock, [this] { return !inbox_.empty(); });
  }
  abort_all();
  close();
}

void EngineLoop::close() {
  guarded([this] {
    while (in_flight_ > 0) deliver();
  });
  BatchPlan plan;
  plan.stop = true;
  std::vector<std::byte> bytes = serialize(plan);
  control_.broadcast(bytes);
  publish(comm::StageKind::kIdle, "shutting down");
}

void EngineLoop::follow() {
  guarded([this] { carry_out_plans(); });
  publish(comm::StageKind::kIdle, "shutting down");
}

void EngineLoop::carry_out_plans() {
  std::vector<std::byte> bytes;
  while (true) {
    {
      const PhaseScope waiting(recorder_, Activity::kAwaitPlan);
      control_.broadcast(bytes);
    }
    const BatchPlan plan = deserialize(bytes);
    if (plan.stop) break;
    submit_plan(plan, bytes);
    while (in_flight_ > (config_.limits.synchronous ? 0 : 1)) collect();
  }
  while (in_flight_ > 0) collect();
}

bool EngineLoop::take_inbox() {
  const PhaseScope scheduling(recorder_, Activity::kSchedule);
  clock_.begin_turn();
  Inbox inbox;
  {
    const std::lock_guard lock(inbox_mutex_);
    std::swap(inbox, inbox_);
    inbox_.stop = inbox.stop;
  }
  if (inbox.empty()) return true;
  for (auto& [request, sink] : inbox.requests) {
    outlets_[request.id] = {std::move(sink),
                            std::vector<bool>(static_cast<std::size_t>(request.params.n))};
    scheduler_.add(std::move(request));
  }
  for (const Cancel& cancel : inbox.cancels) {
    const auto outlet = outlets_.find(cancel.request);
    if (outlet == outlets_.end()) continue;
    if (!cancel.sample) {
      scheduler_.finish(cancel.request);
      outlets_.erase(outlet);
    } else if (*cancel.sample >= 0 &&
               static_cast<std::size_t>(*cancel.sample) < outlet->second.ended.size()) {
      scheduler_.finish(cancel.request, *cancel.sample);
      end_sample(cancel.request, *cancel.sample);
    }
  }
  const std::lock_guard lock(stats_mutex_);
  stats_.scheduler = scheduler_.stats();
  return !inbox.stop;
}

void EngineLoop::turn() {
  publish(comm::StageKind::kStep, "scheduling");
  const BatchPlan plan = [&] {
    const PhaseScope scheduling(recorder_, Activity::kSchedule);
    return scheduler_.plan();
  }();
  const bool rows = plan.num_tokens() > 0;
  TANDEM_ASSERT(rows || in_flight_ > 0, "the scheduler has requests but plans nothing");
  if (config_.limits.synchronous && in_flight_ > 0) deliver();
  if (rows) {
    std::vector<std::byte> bytes;
    {
      const PhaseScope sending(recorder_, Activity::kSendPlan);
      bytes = serialize(plan);
      control_.broadcast(bytes);
    }
    submit_plan(plan, bytes);
  }
  if (in_flight_ > 1 || (!rows && in_flight_ > 0)) deliver();
  clock_.end_turn(config_.limits.synchronous);
  const std::lock_guard lock(stats_mutex_);
  stats_.times = clock_.times();
}

void EngineLoop::submit_plan(const BatchPlan& plan, std::span<const std::byte> bytes) {
  // Every rank has finished all but the last two steps now.
  if (plan.step > 0 && plan.step % kDigestSteps == 0) compare_digests(plan.step - 2);
  digest_.add_plan(bytes);
  if (comm::Progress* progress = control_.progress()) progress->set_step(plan.step);
  publish(device_stage(), "forward pass");
  begin_record(plan);
  {
    const PhaseScope submitting(recorder_, Activity::kSubmit);
    clock_.submit([&] { engine_.submit(plan); });
  }
  ++in_flight_;
  const std::lock_guard lock(stats_mutex_);
  ++stats_.steps;
  stats_.prefill_tokens += plan.num_prefill_tokens();
}

void EngineLoop::begin_record(const BatchPlan& plan) {
  if (recorder_ == nullptr) return;
  StepRecord record;
  record.step = static_cast<std::int32_t>(plan.step);
  record.decode_rows = static_cast<std::int32_t>(plan.decode_slots.size());
  record.prefill_tokens = plan.num_prefill_tokens();
  recorder_->begin_step(record, work_counter_.count(plan));
}

StepOutput EngineLoop::collect() {
  const PhaseScope collecting(recorder_, Activity::kCollect);
  publish(device_stage(), "waiting for tokens");
  StepOutput output;
  clock_.collect([&] { output = engine_.collect(); });
  --in_flight_;
  digest_.add_output(output);
  return output;
}

void EngineLoop::deliver() {
  const StepOutput output = collect();
  std::vector<TokenEvent> events;
  {
    const PhaseScope scheduling(recorder_, Activity::kSchedule);
    events = scheduler_.commit(output);
    const std::lock_guard lock(stats_mutex_);
    stats_.scheduler = scheduler_.stats();
    stats_.generated_tokens += static_cast<std::int64_t>(events.size());
  }
  const PhaseScope delivering(recorder_, Activity::kDeliver);
  for (const TokenEvent& event : events) {
    const auto outlet = outlets_.find(event.request);
    TANDEM_ASSERT(outlet != outlets_.end(), "a token for request ", event.request,
                  ", which has ended");
    outlet->second.sink(event);
    if (event.finish != FinishReason::kNone) end_sample(event.request, event.sample);
  }
}

void EngineLoop::end_sample(RequestId request, std::int32_t sample) {
  const auto outlet = outlets_.find(request);
  std::vector<bool>& ended = outlet->second.ended;
  ended[static_cast<std::size_t>(sample)] = true;
  if (std::find(ended.begin(), ended.end(), false) == ended.end()) outlets_.erase(outlet);
}

void EngineLoop::abort_all() {
  for (auto& [request, outlet] : outlets_) {
    scheduler_.finish(request);
    for (std::size_t sample = 0; sample < outlet.ended.size(); ++sample) {
      if (outlet.ended[sample]) continue;
      TokenEvent event;
      event.request = request;
      event.sample = static_cast<std::int32_t>(sample);
      event.finish = FinishReason::kAbort;
      outlet.sink(event);
    }
  }
  outlets_.clear();
}

void EngineLoop::compare_digests(std::int64_t step) {
  if (control_.size() == 1) return;
  const PhaseScope comparing(recorder_, Activity::kCompare);
  const std::vector<std::string> texts = control_.all_gather(std::to_string(digest_.after(step)));
  const std::vector<int> odd = odd_ranks(texts);
  if (odd.empty()) return;
  std::string names;
  for (const int rank : odd) names += concat(names.empty() ? "" : ", ", rank);
  throw InternalError(concat("rank ", names, " left the common path: by step ", step,
                             " it had received other plans or sampled other tokens than most "
                             "ranks; the answers of this run cannot be trusted"));
}

void EngineLoop::publish(comm::StageKind kind, const char* what) {
  if (comm::Progress* progress = control_.progress()) progress->enter(kind, what);
}

LoopStats EngineLoop::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace tandem::runtime
