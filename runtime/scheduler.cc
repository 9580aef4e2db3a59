// SPDX-License-Identifier: Apache-2.0
#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "kernels/device/error.h"
#include "runtime/scheduler_impl.h"

namespace tandem::runtime {

Scheduler::Scheduler(SchedulerConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
Scheduler::~Scheduler() = default;

namespace {

/// Tokens of prompt and answer.
std::int32_t max_total_tokens(const Request& request, const EngineLimits& limits) {
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(prompt_tokens + request.params.max_tokens, limits.max_model_len));
}

}  // namespace

void check_request(const Request& request, const SchedulerConfig& config) {
  const EngineLimits& limits = config.limits;
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const SamplingParams& params = request.params;
  TANDEM_REQUIRE(prompt_tokens > 0, "The prompt has no token; give at least one.");
  TANDEM_REQUIRE(prompt_tokens < limits.max_model_len, "The prompt has ", prompt_tokens,
                 " tokens, but the context holds ", limits.max_model_len,
                 " with at least one of the answer; shorten it or raise --max-model-len.");
  TANDEM_REQUIRE(params.n >= 1, "n is ", params.n, "; ask for at least one sample.");
  TANDEM_REQUIRE(params.max_tokens >= 1, "max_tokens is ", params.max_tokens,
                 "; ask for at least one token.");
  TANDEM_REQUIRE(
      !params.logprobs || (*params.logprobs >= 0 && *params.logprobs <= kernels::kMaxLogprobs),
      "logprobs must be between 0 and ", kernels::kMaxLogprobs, ".");
  make_slot_params(request, config.eos_ids, 0);
  // The last token of an answer is never read back, so it needs no place in the cache.
  const std::int32_t total = max_total_tokens(request, limits);
  const std::int32_t chunks = (total - 1 + kernels::kChunkTokens - 1) / kernels::kChunkTokens;
  TANDEM_REQUIRE(chunks < limits.num_chunks, "The request may need ", total,
                 " tokens of cache, but all of it holds ",
                 std::int64_t{limits.num_chunks - 1} * kernels::kChunkTokens,
                 "; lower max_tokens or give the cache more memory (--gpu-memory-utilization).");
}

void Scheduler::add(Request request) {
  check_request(request, impl_->config);
  TANDEM_REQUIRE(!impl_->requests.contains(request.id), "Request id ", request.id,
                 " is in use; choose another.");
  const std::int32_t total = max_total_tokens(request, impl_->config.limits);

  auto shared = std::make_shared<const Request>(std::move(request));
  std::vector<SequencePtr> samples;
  for (std::int32_t i = 0; i < shared->params.n; ++i) {
    auto sequence = std::make_shared<Sequence>();
    sequence->request = shared;
    sequence->sample = i;
    sequence->order = impl_->next_order++;
    sequence->params = make_slot_params(*shared, impl_->config.eos_ids, i);
    sequence->max_total_tokens = total;
    sequence->tokens = shared->prompt;
    samples.push_back(std::move(sequence));
  }
  impl_->waiting.insert(samples.begin(), samples.end());
  impl_->requests.emplace(shared->id, std::move(samples));
}

void Scheduler::finish(RequestId request) {
  const auto found = impl_->requests.find(request);
  if (found == impl_->requests.end()) return;
  for (const SequencePtr& sequence : found->second) impl_->end(sequence);
  impl_->requests.erase(found);
}

void Scheduler::finish(RequestId request, std::int32_t sample) {
  const auto found = impl_->requests.find(request);
  if (found == impl_->requests.end()) return;
  TANDEM_ASSERT(0 <= sample && sample < static_cast<std::int32_t>(found->second.size()), "request ",
                request, " has no sample ", sample);
  impl_->end(found->second[sample]);
  impl_->forget_if_ended(request);
}

void Scheduler::Impl::end(const SequencePtr& sequence) {
  if (sequence->state == Sequence::State::kRunning) {
    residency.vacate(*sequence);
    running.erase(std::find(running.begin(), running.end(), sequence));
  } else if (sequence->state == Sequence::State::kWaiting) {
    waiting.erase(sequence);
    if (refused == sequence.get()) refused = nullptr;
  }
  sequence->state = Sequence::State::kFinished;
}

void Scheduler::Impl::forget_if_ended(RequestId request) {
  const auto found = requests.find(request);
  const bool ended = std::all_of(found->second.begin(), found->second.end(), [](const auto& s) {
    return s->state == Sequence::State::kFinished;
  });
  if (ended) requests.erase(found);
}

std::vector<TokenEvent> Scheduler::commit(const StepOutput& output) {
  Impl& impl = *impl_;
  TANDEM_ASSERT(!impl.in_flight.empty(), "step ", output.step, " was never planned");
  const PlannedStep step = std::move(impl.in_flight.front());
  impl.in_flight.pop_front();
  TANDEM_ASSERT(output.step == step.step && output.tokens.size() == step.rows.size(),
                "tokens of step ", output.step, " (", output.tokens.size(), ") instead of step ",
                step.step, " (", step.rows.size(), ")");
  impl.receive_scores(step, output);
  std::vector<TokenEvent> events;
  for (std::size_t row = 0; row < step.rows.size(); ++row) {
    const auto& [sequence, position] = step.rows[row];
    --sequence->in_flight;
    // The overrun row of a sequence that ended meanwhile: its token does not exist.
    if (sequence->state == Sequence::State::kFinished) continue;
    events.push_back(impl.receive(*sequence, position, output, row));
    if (events.back().finish != FinishReason::kNone) {
      impl.end(sequence);
      impl.forget_if_ended(sequence->request->id);
    }
  }
  impl.residency.commit(step.step);
  return events;
}

void Scheduler::Impl::receive_scores(const PlannedStep& step, const StepOutput& output) {
  constexpr std::ptrdiff_t kStride = 1 + kernels::kMaxLogprobs;
  auto row = output.scores.begin();
  for (const auto& [sequence, count] : step.scores) {
    TANDEM_ASSERT(output.scores.end() - row >= count * kStride,
                  "the step came back without scores");
    for (std::int32_t i = 0; i < count; ++i, row += kStride)
      sequence->prompt_logprobs.emplace_back(
          row, row + 1 + sequence->request->params.prompt_logprobs.value_or(0));
  }
}

TokenEvent Scheduler::Impl::receive(Sequence& sequence, std::int32_t position,
                                    const StepOutput& output, std::size_t row) {
  const std::int32_t token = output.tokens[row];
  TANDEM_ASSERT(token >= 0, "no token for request ", sequence.request->id, " at position ",
                position, ", which has not ended");
  if (sequence.state == Sequence::State::kRunning) residency.publish(sequence, position + 1);
  sequence.tokens.push_back(token);

  TokenEvent event;
  event.request = sequence.request->id;
  event.sample = sequence.sample;
  event.token = token;
  if (sequence.is_stop_id(token)) {
    event.finish = FinishReason::kStop;
  } else if (sequence.num_tokens() == sequence.max_total_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (sequence.num_tokens() == sequence.num_prompt() + 1)
    event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  if (const auto& count = sequence.request->params.logprobs) {
    constexpr std::size_t kStride = 1 + kernels::kMaxLogprobs;
    TANDEM_ASSERT(output.logprobs.size() == output.tokens.size() * kStride,
                  "the step came back without logprobs");
    const auto begin = output.logprobs.begin() + static_cast<std::ptrdiff_t>(row * kStride);
    event.logprobs.assign(begin, begin + 1 + *count);
  }
  return event;
}

bool Scheduler::idle() const { return impl_->requests.empty() && impl_->in_flight.empty(); }

SchedulerStats Scheduler::stats() const {
  const Residency& residency = impl_->residency;
  SchedulerStats stats;
  stats.running = static_cast<std::int64_t>(impl_->running.size());
  stats.waiting = static_cast<std::int64_t>(impl_->waiting.size());
  stats.preemptions = impl_->preemptions;
  stats.used_chunks = residency.used();
  stats.mapped_chunks = residency.mapped();
  stats.max_chunks = impl_->config.limits.num_chunks;
  stats.cached_chunks = residency.cached();
  stats.prefix_queries_tokens = residency.queried_tokens();
  stats.prefix_hits_tokens = residency.hit_tokens();
  return stats;
}

}  // namespace tandem::runtime
