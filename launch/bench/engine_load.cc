// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/engine_load.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "launch/bench/steady_start.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

EngineLoad::EngineLoad(runtime::EngineLoop& loop, const Workload& workload, PromptMaker prompts,
                       Encode encode, ProgressLine& progress)
    : loop_(loop),
      workload_(workload),
      prompts_(prompts),
      encode_(std::move(encode)),
      progress_(progress) {}

LoadCount EngineLoad::run_all() {
  running_.resize(workload_.requests.size());
  part_tokens_.assign(1, 0);
  open();
  for (std::size_t place = 0; place < running_.size(); ++place) begin(place);
  loop_.run_until_idle();
  close();
  return count_;
}

LoadCount EngineLoad::run_steady(const SteadyConfig& config) {
  config_ = config;
  steady_ = true;
  running_.resize(static_cast<std::size_t>(config.concurrency));
  part_tokens_.assign(static_cast<std::size_t>(config.parts), 0);
  std::vector<BenchRequest> first;
  for (std::size_t place = 0; place < running_.size(); ++place) first.push_back(next_item());
  const auto left = steady_start(first, config.step_tokens, config.mixed_step_tokens);
  for (std::size_t place = 0; place < running_.size(); ++place)
    begin(place, first[place], left[place]);
  loop_.run_until_idle();
  return count_;
}

BenchRequest EngineLoad::next_item() {
  const auto size = static_cast<std::int64_t>(workload_.requests.size());
  BenchRequest item = workload_.requests[static_cast<std::size_t>(next_ % size)];
  item.number = next_++;
  return item;
}

void EngineLoad::begin(std::size_t place) {
  BenchRequest item = next_item();
  const std::int32_t left = item.output;
  begin(place, std::move(item), left);
}

void EngineLoad::begin(std::size_t place, BenchRequest item, std::int32_t left) {
  item.input += item.output - left;
  runtime::Request request;
  request.prompt = item.text.empty() ? prompts_.tokens(item) : encode_(item.text);
  request.params.max_tokens = left;
  request.params.ignore_eos = workload_.has_lengths;
  Running& running = running_[place];
  running = {0, static_cast<std::int64_t>(request.prompt.size()), 0, request.params.max_tokens};
  running.id = loop_.submit(std::move(request), [this, place](const runtime::TokenEvent& event) {
    accept(place, event);
  });
}

void EngineLoad::accept(std::size_t place, const runtime::TokenEvent& event) {
  Running& running = running_[place];
  if (closed_ || event.request != running.id || event.token < 0) return;
  const bool ended = event.finish != runtime::FinishReason::kNone;
  if (++running.tokens == 1 && started_ < running_.size() && ++started_ == running_.size())
    ready_ = Clock::now();
  if (steady_) {
    const bool warm =
        started_ == running_.size() && seconds_between(ready_, Clock::now()) >= config_.warmup_s;
    if (!counting_ && warm) open();
    if (counting_ && seconds_between(opened_, Clock::now()) >= config_.duration_s) return close();
  }
  if (counting_) count(running, ended);
  progress_.update([&] {
    if (!counting_)
      return concat(started_, " of ", running_.size(), " first requests have begun to answer");
    const double seconds = seconds_between(opened_, Clock::now());
    return concat(decimal(seconds, 0), " s: ", count_.requests, " requests ended, ",
                  decimal(static_cast<double>(count_.output_tokens) / seconds, 1),
                  " output tokens/s");
  });
  if (ended && steady_) begin(place);
}

void EngineLoad::count(const Running& running, bool ended) {
  const auto context = static_cast<double>(running.prompt + running.tokens - 1);
  ++count_.output_tokens;
  if (running.tokens == 1) {
    count_.prompt_tokens += running.prompt;
    count_.work.prefill_pairs += context * (context + 1) / 2;
  } else {
    ++count_.work.decode_tokens;
    count_.work.decode_context += context;
  }
  if (ended) ++count_.requests;
  std::size_t part = 0;
  if (steady_)
    part = static_cast<std::size_t>(seconds_between(opened_, Clock::now()) / config_.duration_s *
                                    static_cast<double>(part_tokens_.size()));
  ++part_tokens_[std::min(part, part_tokens_.size() - 1)];
}

void EngineLoad::open() {
  counting_ = true;
  opened_ = Clock::now();
  before_ = loop_.stats();
}

void EngineLoad::close() {
  closed_ = true;
  progress_.finish();
  count_.seconds = seconds_between(opened_, Clock::now());
  const runtime::LoopStats after = loop_.stats();
  count_.work.steps = static_cast<double>(after.steps - before_.steps);
  count_.work.prefill_tokens = static_cast<double>(after.prefill_tokens - before_.prefill_tokens);
  // What a prefix cache knew was not computed.
  if (count_.prompt_tokens > 0)
    count_.work.prefill_pairs *=
        std::min(1.0, count_.work.prefill_tokens / static_cast<double>(count_.prompt_tokens));
  const double part_s = count_.seconds / static_cast<double>(part_tokens_.size());
  for (const std::int64_t tokens : part_tokens_)
    count_.output_per_s.push_back(static_cast<double>(tokens) / part_s);
  for (const Running& running : running_) loop_.cancel(running.id);
}

}  // namespace tandem::launch
