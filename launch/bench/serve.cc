// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/serve.h"

#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "launch/bench/progress_line.h"
#include "launch/bench/serve_report.h"
#include "launch/bench/served_facts.h"
#include "launch/bench/work.h"
#include "launch/bench/workload.h"
#include "launch/command_line.h"
#include "launch/text_table.h"
#include "runtime/weights/gguf_config.h"
#include "runtime/weights/model_path.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;
namespace po = boost::program_options;
constexpr double kNoRate = -1;  ///< A trace at its own times.

struct Options {
  WorkloadOptions workload;
  std::string base_url = "http://127.0.0.1:8000", endpoint = "/v1/completions", model, api_key;
  std::string extra_body, json, name, ceiling_model, ceiling_gpu;
  std::vector<std::string> rate_words, objective_words;
  std::vector<double> rates;
  Objectives objectives;
  std::int64_t max_concurrency = 0, vocab_size = 0, gpus = 0, warmups = 1;
  double burstiness = 1, time_scale = 1, timeout_s = 3600, temperature = 0;
  bool ignore_eos = false, no_ignore_eos = false, stop_at_miss = false;
  json::object extra;

  bool chat() const { return endpoint.find("chat") != std::string::npos; }
};

double parse_rate(const std::string& word) {
  char* end = nullptr;
  const double rate = std::strtod(word.c_str(), &end);
  TANDEM_REQUIRE(end != word.c_str() && *end == '\0' && rate > 0, "--request-rate ", word,
                 " is no rate; write requests per second, or inf");
  return rate;
}

void check(Options& options) {
  options.workload.validate();
  options.objectives = parse_objectives(options.objective_words);
  for (const std::string& word : options.rate_words) options.rates.push_back(parse_rate(word));
  if (options.rates.empty())
    options.rates.push_back(options.workload.trace.empty() ? std::numeric_limits<double>::infinity()
                                                           : kNoRate);
  TANDEM_REQUIRE(options.burstiness > 0, "--burstiness must be above 0, not ", options.burstiness);
  TANDEM_REQUIRE(options.time_scale > 0, "--time-scale must be above 0, not ", options.time_scale);
  TANDEM_REQUIRE(options.timeout_s > 0, "--timeout must be above 0, not ", options.timeout_s);
  TANDEM_REQUIRE(options.max_concurrency >= 0 && options.warmups >= 0,
                 "--max-concurrency and --num-warmups must not be negative");
  TANDEM_REQUIRE(options.endpoint.rfind('/', 0) == 0, "--endpoint ", options.endpoint,
                 " must begin with /, for example /v1/completions");
  if (!options.extra_body.empty()) {
    boost::system::error_code wrong;
    const json::value value = json::parse(options.extra_body, wrong);
    TANDEM_REQUIRE(!wrong && value.is_object(), "--extra-body ", options.extra_body,
                   " is no JSON object; write for example '{\"top_k\": 40}'");
    options.extra = value.get_object();
  }
  for (const char* variable : {"TANDEM_API_KEY", "OPENAI_API_KEY"})
    if (const char* key = std::getenv(variable); key != nullptr && options.api_key.empty())
      options.api_key = key;
}

bool parse(Ranks& ranks, const std::vector<std::string>& arguments, Options& options) {
  po::options_description description(
      "usage: tandem bench serve [--base-url http://HOST:PORT] [options]\n\nLoads a running "
      "OpenAI-compatible server. Every request is sent at its time whatever the server does; what "
      "--max-concurrency or a slow client holds back is shown as \"client queue\"");
  // clang-format off
  description.add_options()
      ("base-url", po::value(&options.base_url)->default_value(options.base_url), "the server")
      ("endpoint", po::value(&options.endpoint)->default_value(options.endpoint), "or /v1/chat/completions, which gets words instead of token ids")
      ("model,m", po::value(&options.model), "model name in requests; default: the server's first")
      ("api-key", po::value(&options.api_key), "also: environment variable TANDEM_API_KEY or OPENAI_API_KEY")
      ("request-rate", po::value(&options.rate_words)->multitoken(), "requests per second, or inf (the default); several are run one after the other; a trace is played at this mean rate")
      ("burstiness", po::value(&options.burstiness)->default_value(1, "1"), "shape of the Gamma distribution of gaps; 1 is a Poisson process, less comes in bursts")
      ("time-scale", po::value(&options.time_scale)->default_value(1, "1"), "a trace's seconds per second, when no rate is given")
      ("max-concurrency", po::value(&options.max_concurrency)->default_value(0, "no limit"), "requests under way at most")
      ("goodput", po::value(&options.objective_words)->multitoken(), "objectives in ms: ttft:5000 tpot:50 e2el:60000; they also set the deadlines of the fluidity index")
      ("stop-at-miss", po::bool_switch(&options.stop_at_miss), "leave out the rates after one whose p99 misses an objective")
      ("num-warmups", po::value(&options.warmups)->default_value(options.warmups), "requests before the clock starts")
      ("ignore-eos", po::bool_switch(&options.ignore_eos), "answers of full length; so it is anyway where the data set gives lengths")
      ("no-ignore-eos", po::bool_switch(&options.no_ignore_eos), "never ask for that (some servers refuse the field)")
      ("temperature", po::value(&options.temperature)->default_value(0, "0"), "of sampling")
      ("extra-body", po::value(&options.extra_body), "JSON object of more fields for each request")
      ("vocab-size", po::value(&options.vocab_size)->default_value(0, "the server's, or 10000"), "prompt token ids are below it")
      ("timeout", po::value(&options.timeout_s)->default_value(3600, "3600"), "seconds for one request")
      ("num-gpus", po::value(&options.gpus)->default_value(0, "the server's ranks, or 1"), "divides tokens/s per GPU")
      ("ceiling-model", po::value(&options.ceiling_model), "model folder, to show the share of what the hardware allows")
      ("ceiling-gpu", po::value(&options.ceiling_gpu), "GPU for that; default: the one a Tandem server names")
      ("name", po::value(&options.name), "the model's name in the results; default: as served")
      ("json", po::value(&options.json), "write the results to this file; - is standard output")
      ("help,h", "this text");
  // clang-format on
  options.workload.add_to(description);
  if (!parse_or_help(ranks.first(), "bench serve", arguments, description)) return false;
  TANDEM_REQUIRE(ranks.control.size() == 1,
                 "tandem bench serve is one client; start it without mpirun");
  check(options);
  return true;
}

class ServeBench {
 public:
  ServeBench(Options options, ProgressLine::Style style)
      : options_(std::move(options)),
        style_(style),
        server_(parse_base_url(options_.base_url)),
        workload_(make_workload(options_.workload)),
        prompts_(1, options_.workload.seed) {
    server_.api_key = options_.api_key;
    facts_ = served_facts(server_);
    if (options_.model.empty()) options_.model = facts_.model;
    if (options_.name.empty()) options_.name = options_.model;
    std::int64_t left_out = 0;
    if (facts_.max_model_len > 0) keep_fitting(workload_, facts_.max_model_len, &left_out);
    if (left_out > 0)
      std::fprintf(stderr,
                   "%lld requests are longer than the server's %d tokens and were left out\n",
                   static_cast<long long>(left_out), facts_.max_model_len);
    std::int64_t vocabulary = options_.vocab_size > 0 ? options_.vocab_size : facts_.vocab_size;
    prompts_ = PromptMaker(vocabulary > 0 ? vocabulary : 10000, options_.workload.seed);
  }

  void warm_up() {
    if (options_.warmups == 0) return;
    const auto records = load(std::vector<double>(
        std::min(static_cast<std::size_t>(options_.warmups), workload_.requests.size()), 0.0));
    for (const RequestRecord& record : records)
      TANDEM_REQUIRE(record.ok(), "a first request to ", options_.base_url, options_.endpoint,
                     " failed (", record.error, "); try it with curl");
  }

  /// False when an objective was missed.
  bool run(double rate, BenchResults& results, bool print) {
    const auto before = served_counts(server_, facts_);
    const LoadReport report = summarise(load(times(rate)), options_.objectives);
    const auto after = served_counts(server_, facts_);
    ServeContext context = context_of(rate);
    if (before && after) add_server_side(*before, *after, report, context);
    if (print) std::fputs((describe(report, context) + "\n").c_str(), stdout), std::fflush(stdout);
    add_rows(report, context, results);
    return holds(report, options_.objectives);
  }

 private:
  std::vector<double> times(double rate) const {
    const auto count = static_cast<std::int64_t>(workload_.requests.size());
    if (!workload_.timed)
      return arrival_times(count, rate, options_.burstiness, options_.workload.seed);
    const double span = workload_.requests.back().at_s;
    double scale = options_.time_scale;
    if (rate != kNoRate)
      scale = std::isfinite(rate) ? rate * span / static_cast<double>(count)
                                  : std::numeric_limits<double>::infinity();
    std::vector<double> result;
    for (const BenchRequest& request : workload_.requests)
      result.push_back(scale > 0 ? request.at_s / scale : 0);
    return result;
  }

  std::string body(std::size_t i) const {
    const BenchRequest& request = workload_.requests[i];
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

  std::vector<RequestRecord> load(std::vector<double> times) {
    prompts_.next_run();  // nothing of an earlier run is found in a prefix cache
    ProgressLine line(style_);
    LoadPlan plan;
    plan.path = options_.endpoint;
    plan.times_s = std::move(times);
    plan.max_concurrency = options_.max_concurrency;
    plan.timeout_s = options_.timeout_s;
    plan.body = [&](std::size_t i) { return body(i); };
    const std::size_t total = plan.times_s.size();
    plan.progress = [&](const LoadState& state) {
      line.update([&] {
        return concat(decimal(state.seconds, 0), " s: ", state.done, " of ", total, " done, ",
                      state.sent - state.done, " running, ", state.due - state.sent,
                      " waiting in the client, ", state.failed, " failed");
      });
    };
    return run_load(server_, plan);
  }

  ServeContext context_of(double rate) const {
    ServeContext context;
    context.name = options_.name + " " + workload_.label;
    context.rate = rate;
    if (rate == kNoRate) {
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

  void add_server_side(const ServedCounts& before, const ServedCounts& after,
                       const LoadReport& report, ServeContext& context) const {
    if (options_.gpus == 0) context.gpus = std::max<std::int64_t>(after.ranks, 1);
    context.preemptions = after.preemptions - before.preemptions;
    const auto asked = static_cast<double>(after.prefix_queries - before.prefix_queries);
    const auto hits = static_cast<double>(after.prefix_hits - before.prefix_hits);
    if (asked > 0) context.reuse = hits / asked;
    if (options_.ceiling_model.empty()) return;
    const runtime::ModelConfig config =
        runtime::read_model_config(runtime::resolve_model_path(options_.ceiling_model));
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
    context.floor_s = floor_seconds(work_of(config, config.dtype, static_cast<int>(context.gpus)),
                                    work, ceilings);
  }

  Options options_;
  ProgressLine::Style style_;
  ServerAddress server_;
  ServedFacts facts_;
  Workload workload_;
  PromptMaker prompts_;
};

}  // namespace

int run_bench_serve(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  if (!parse(ranks, arguments, options)) return 0;
  const bool print = options.json != "-";
  ServeBench bench(options, ProgressLine::automatic(ranks.session.under_launcher()));
  BenchResults results("serve", command_text(ranks, "bench serve", arguments));
  bench.warm_up();
  double highest = 0;
  for (const double rate : options.rates) {
    const bool held = bench.run(rate, results, print);
    if (held) highest = std::max(highest, rate);
    if (!held && options.stop_at_miss) break;
  }
  if (options.objectives.any() && !options.rate_words.empty()) {
    results.add({options.name.empty() ? "sweep" : options.name, "highest_rate_held", "requests/s",
                 highest, 0, 0, false, options.rates.size(), "max"});
    if (print)
      std::printf("highest rate that holds the objectives: %s requests/s\n",
                  highest > 0 ? decimal(highest, 3).c_str() : "none");
  }
  if (!options.json.empty()) results.write(options.json);
  return 0;
}

}  // namespace tandem::launch
