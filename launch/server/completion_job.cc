// SPDX-License-Identifier: Apache-2.0
#include "launch/server/completion_job.h"

#include <algorithm>

#include "launch/server/api_error.h"

namespace tandem::launch {

void TokenPump::push(const std::shared_ptr<CompletionJob>& job, int prompt,
                     const runtime::TokenEvent& event) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = items_.empty();
    items_.push_back({job, prompt, event});
  }
  if (first) server_.post([this] { drain(); });
}

void TokenPump::drain() {
  std::vector<Item> items;
  {
    const std::lock_guard lock(mutex_);
    items.swap(items_);
  }
  for (const Item& item : items) item.job->receive(item.prompt, item.event);
  for (const Item& item : items) item.job->flush();
}

CompletionJob::CompletionJob(Services services, std::shared_ptr<HttpExchange> exchange,
                             CompletionRequest request, std::function<void()> on_end)
    : services_(services),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      writer_(request_.chat, services.model.name),
      on_end_(std::move(on_end)) {}

void CompletionJob::start(std::vector<runtime::Request> requests) {
  const int n = request_.params.n;
  const auto self = shared_from_this();
  choices_.reserve(requests.size() * static_cast<std::size_t>(n));
  for (std::size_t p = 0; p < requests.size(); ++p) {
    for (int s = 0; s < n; ++s) {
      choices_.emplace_back(static_cast<int>(p) * n + s, request_, services_.model.text_or_null());
      if (request_.echo) {
        choices_.back().prepend(services_.model.text("echo").decode(requests[p].prompt));
      }
    }
    usage_.prompt_tokens += static_cast<std::int64_t>(requests[p].prompt.size());
    if (request_.params.prompt_logprobs) prompts_.push_back(requests[p].prompt);
  }
  running_ = choices_.size();
  first_token_.assign(choices_.size(), begun_);
  last_token_.assign(choices_.size(), begun_);
  for (std::size_t p = 0; p < requests.size(); ++p) {
    const auto sink = [self, p](const runtime::TokenEvent& event) {
      self->services_.pump.push(self, static_cast<int>(p), event);
    };
    try {
      ids_.push_back(services_.loop.submit(std::move(requests[p]), sink));
    } catch (...) {
      for (const runtime::RequestId id : ids_) services_.loop.cancel(id);
      ended_ = true;
      throw;
    }
  }
  services_.metrics.prompt_tokens += usage_.prompt_tokens;
  services_.metrics.request_prompt_tokens.observe(static_cast<double>(usage_.prompt_tokens));
  // Posted, because the server calls back from inside `write` when a client is cut.
  exchange_->on_disconnect([weak = weak_from_this(), &server = services_.server] {
    server.post([weak] {
      if (const auto job = weak.lock()) job->abandon();
    });
  });
}

Choice& CompletionJob::choice(int prompt, int sample) {
  return choices_[static_cast<std::size_t>(prompt * request_.params.n + sample)];
}

void CompletionJob::receive(int prompt, const runtime::TokenEvent& event) {
  if (ended_) return;
  if (request_.params.prompt_logprobs && event.sample == 0 && event.token >= 0 &&
      choice(prompt, 0).num_tokens() == 0)
    for (int sample = 0; sample < request_.params.n; ++sample)
      choice(prompt, sample)
          .set_prompt_logprobs(prompts_[static_cast<std::size_t>(prompt)], event.prompt_logprobs);
  Choice& target = choice(prompt, event.sample);
  if (target.finished()) return;
  if (event.token >= 0) observe(target);
  if (target.push(event)) {
    services_.loop.cancel(ids_[static_cast<std::size_t>(prompt)], event.sample);
  }
  if (target.finished()) finish_choice(target);
}

void CompletionJob::observe(const Choice& target) {
  const auto now = Clock::now();
  auto& last = last_token_[static_cast<std::size_t>(target.index())];
  const double seconds = std::chrono::duration<double>(now - last).count();
  const bool first = target.num_tokens() == 0;
  (first ? services_.metrics.ttft_s : services_.metrics.itl_s).observe(seconds);
  if (first) first_token_[static_cast<std::size_t>(target.index())] = now;
  last = now;
}

void CompletionJob::finish_choice(const Choice& target) {
  --running_;
  usage_.completion_tokens += target.num_tokens();
  if (target.num_tokens() > 1) {
    const auto index = static_cast<std::size_t>(target.index());
    const std::chrono::duration<double> time = last_token_[index] - first_token_[index];
    services_.metrics.tpot_s.observe(time.count() / static_cast<double>(target.num_tokens() - 1));
  }
  ++services_.metrics.finished[target.finish_reason()];
  services_.metrics.request_generation_tokens.observe(static_cast<double>(target.num_tokens()));
}

void CompletionJob::flush() {
  if (ended_) return;
  if (request_.stream) send_pieces();
  if (running_ > 0) return;
  services_.metrics.e2e_s.observe(std::chrono::duration<double>(Clock::now() - begun_).count());
  if (!request_.stream) send_whole();
  end();
}

void CompletionJob::send_pieces() {
  std::string out;
  if (!streaming_) {
    streaming_ = true;
    exchange_->begin_stream("text/event-stream");
    ++services_.metrics.responses[200];
    for (const Choice& each : choices_) {
      if (request_.chat) out += writer_.role_event(each.index());
    }
  }
  for (Choice& each : choices_) {
    if (each.has_news()) out += writer_.event(each);
  }
  if (running_ == 0) {
    if (request_.include_usage) out += writer_.usage_event(usage_);
    out += CompletionWriter::done_event();
  }
  exchange_->write(out);
  if (running_ == 0) exchange_->end();
}

void CompletionJob::send_whole() {
  HttpResponse response;
  response.body = writer_.whole(choices_, usage_);
  ++services_.metrics.responses[response.status];
  exchange_->reply(std::move(response));
}

void CompletionJob::abandon() {
  if (ended_) return;
  for (const runtime::RequestId id : ids_) services_.loop.cancel(id);
  services_.metrics.finished[runtime::name(runtime::FinishReason::kAbort)] +=
      static_cast<std::int64_t>(running_);
  end();
}

void CompletionJob::end() {
  ended_ = true;
  on_end_();
}

}  // namespace tandem::launch
