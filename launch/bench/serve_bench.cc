// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/serve_bench.h"

#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <thread>

#include "kernels/device/error.h"
#include "launch/bench/work.h"
#include "launch/text_table.h"
#include "runtime/weights/gguf_config.h"
#include "runtime/weights/model_path.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;
constexpr std::int64_t kHistoryConcurrency = 16;

}  // namespace

ServeBench::ServeBench(ServeOptions options, ProgressLine::Style style)
    : options_(std::move(options)),
      style_(style),
      server_(parse_base_url(options_.base_url)),
      workload_(make_workload(options_.workload)),
      prompts_(1, 0) {
  server_.api_key = options_.api_key;
  find_ceilings();
  facts_ = served_facts(server_);
  if (options_.model.empty()) options_.model = facts_.model;
  if (options_.name.empty()) options_.name = options_.model;
  std::int64_t left_out = 0;
  if (facts_.max_model_len > 0) keep_fitting(workload_, facts_.max_model_len, &left_out);
  if (left_out > 0)
    std::fprintf(stderr, "%lld requests are longer than the server's %d tokens and were left out\n",
                 static_cast<long long>(left_out), facts_.max_model_len);
  choose_prompts(workload_, options_.workload, options_.prefix_history);
  std::int64_t vocabulary = options_.vocab_size > 0 ? options_.vocab_size : facts_.vocab_size;
  // Not from --seed: the server may have prompts of an earlier bench in its prefix cache.
  prompts_ = PromptMaker(vocabulary > 0 ? vocabulary : 10000, std::random_device()());
  prompts_.last(workload_.history);
}

void ServeBench::warm_up() {
  if (options_.warmups == 0) return;
  prompts_.next_run();
  LoadPlan plan = plan_of(workload_.requests, "warming up");
  plan.times_s.assign(
      std::min(static_cast<std::size_t>(options_.warmups), workload_.requests.size()), 0.0);
  require_all(run_load(server_, plan), "a first request");
}

void ServeBench::require_an_answer() const {
  TANDEM_REQUIRE(completed_ > 0 || first_error_.empty(), "every request failed (", first_error_,
                 "); try one with curl ", options_.base_url, options_.endpoint);
}

bool ServeBench::run(double rate, BenchResults& results, bool print) {
  prompts_.next_run();  // nothing of an earlier run is found in a prefix cache
  send_history();
  const auto before = served_counts(server_, facts_);
  ServeContext context = context_of(rate);
  LoadPlan plan = plan_of(workload_.requests, concat(decimal(context.rate, 3), " requests/s"));
  plan.times_s = times(rate);
  if (options_.stop_at_miss || options_.search)
    plan.enough = [&](const std::vector<RequestRecord>& records, double now_s) {
      context.misses = count_misses(records, now_s, options_.objectives);
      return hopeless(context.misses, records.size());
    };
  const LoadReport report = summarise(run_load(server_, plan), options_.objectives);
  if (report.abandoned > 0) settle();
  completed_ += report.completed;
  if (first_error_.empty() && !report.errors.empty()) first_error_ = report.errors.begin()->first;
  const auto after = served_counts(server_, facts_);
  if (before && after) add_server_side(*before, *after, report, context);
  if (print) std::fputs((describe(report, context) + "\n").c_str(), stdout), std::fflush(stdout);
  add_rows(report, context, results);
  return holds(report, options_.objectives);
}

void ServeBench::find_ceilings() {
  if (options_.ceiling_model.empty()) return;
  TANDEM_REQUIRE(
      options_.ceiling_gpu.empty() || gpu_ceilings(options_.ceiling_gpu).read_gb_per_s > 0,
      "no ceilings of --ceiling-gpu ", options_.ceiling_gpu,
      " are known; leave it out, or name \"NVIDIA H200\"");
  ceiling_config_ = runtime::read_model_config(runtime::resolve_model_path(options_.ceiling_model));
}

std::vector<double> ServeBench::times(double rate) const {
  const auto count = static_cast<std::int64_t>(workload_.requests.size());
  if (!workload_.timed)
    return arrival_times(count, rate, options_.burstiness, options_.workload.seed);
  const double span = workload_.requests.back().at_s;
  double scale = options_.time_scale;
  if (rate != ServeOptions::kOwnTimes)
    scale = std::isfinite(rate) ? rate * span / static_cast<double>(count)
                                : std::numeric_limits<double>::infinity();
  std::vector<double> result;
  for (const BenchRequest& request : workload_.requests)
    result.push_back(scale > 0 ? request.at_s / scale : 0);
  return result;
}

std::string ServeBench::body(const BenchRequest& request) const {
  json::object body{{"model", options_.model},
                    {"stream", true},
                    {"temperature", options_.temperature},
                    {"max_tokens", request.output}};
  body["stream_options"] = json::object{{"include_usage", true}};
  if ((workload_.has_lengths || options_.ignore_eos) && !options_.no_ignore_eos)
    body["ignore_eos"] = true;
  if (facts_.gives_token_ids) body["return_token_ids"] = true;
  if (options_.chat()) {
    const std::string text = request.text.empty() ? prompts_.words(request) : request.text;
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", text}}};
  } else if (request.text.empty()) {
    const std::vector<std::int32_t> ids = prompts_.tokens(request);
    body["prompt"] = json::array(ids.begin(), ids.end());
  } else {
    body["prompt"] = request.text;
  }
  for (const auto& field : options_.extra) body[field.key()] = field.value();
  return json::serialize(body);
}

LoadPlan ServeBench::plan_of(const std::vector<BenchRequest>& requests,
                             const std::string& title) const {
  LoadPlan plan;
  plan.path = options_.endpoint;
  plan.max_concurrency = options_.max_concurrency;
  plan.timeout_s = options_.timeout_s;
  plan.body = [this, &requests](std::size_t i) { return body(requests[i]); };
  const auto line = std::make_shared<ProgressLine>(style_);
  plan.progress = [line, title](const LoadState& state) {
    line->update([&] {
      return concat(title, ", ", decimal(state.seconds, 0), " s: ", state.done, " of ", state.total,
                    " done, ", state.sent - state.done, " running, ", state.due - state.sent,
                    " waiting in the client, ", state.failed, " failed");
    });
  };
  return plan;
}

void ServeBench::require_all(const std::vector<RequestRecord>& records, const char* what) const {
  for (const RequestRecord& record : records)
    TANDEM_REQUIRE(record.ok(), what, " to ", options_.base_url, options_.endpoint, " failed (",
                   record.error, "); try it with curl");
}

void ServeBench::send_history() const {
  if (workload_.history.empty()) return;
  std::vector<BenchRequest> requests = workload_.history;
  for (BenchRequest& request : requests) request.output = 1;
  LoadPlan plan = plan_of(requests, "history");
  plan.times_s.assign(requests.size(), 0.0);
  plan.max_concurrency = kHistoryConcurrency;
  require_all(run_load(server_, plan), "a request of the history");
}

void ServeBench::settle() const {
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto counts = served_counts(server_, facts_);
    if (!counts ? i == 10 : counts->unfinished == 0) return;
  }
}

ServeContext ServeBench::context_of(double rate) const {
  ServeContext context;
  context.name = options_.name + " " + workload_.label;
  context.rate = rate;
  if (rate == ServeOptions::kOwnTimes) {
    context.rate = static_cast<double>(workload_.requests.size()) * options_.time_scale /
                   std::max(workload_.requests.back().at_s, 1e-9);
    context.name += concat(" time-scale", options_.time_scale);
  } else {
    context.name += concat(" rate", std::isfinite(rate) ? concat(rate) : "inf");
  }
  if (options_.max_concurrency > 0) context.name += concat(" c", options_.max_concurrency);
  context.objectives = options_.objectives;
  context.gpus = std::max<std::int64_t>(options_.gpus, 1);
  return context;
}

void ServeBench::add_server_side(const ServedCounts& before, const ServedCounts& after,
                                 const LoadReport& report, ServeContext& context) const {
  if (options_.gpus == 0) context.gpus = std::max<std::int64_t>(after.ranks, 1);
  context.preemptions = after.preemptions - before.preemptions;
  const auto asked = static_cast<double>(after.prefix_queries - before.prefix_queries);
  const auto hits = static_cast<double>(after.prefix_hits - before.prefix_hits);
  if (asked > 0) context.reuse = hits / asked;
  if (!ceiling_config_) return;
  const runtime::ModelConfig& config = *ceiling_config_;
  const Ceilings ceilings =
      gpu_ceilings(options_.ceiling_gpu.empty() ? after.device : options_.ceiling_gpu);
  ServedWork work;
  work.steps = static_cast<double>(after.steps - before.steps);
  work.prefill_tokens = static_cast<double>(after.prefill_tokens - before.prefill_tokens);
  work.decode_tokens = static_cast<double>(report.output_tokens - report.completed);
  const double completed = std::max<double>(static_cast<double>(report.completed), 1);
  const double prompt = static_cast<double>(report.prompt_tokens) / completed,
               answer = static_cast<double>(report.output_tokens) / completed;
  // From mean lengths: less than the truth when lengths differ, so the ceiling stays one.
  work.prefill_pairs = work.prefill_tokens * prompt / 2;
  work.decode_context = work.decode_tokens * (prompt + answer / 2);
  context.floor_s =
      floor_seconds(work_of(config, config.dtype, static_cast<int>(context.gpus)), work, ceilings);
}

}  // namespace tandem::launch
