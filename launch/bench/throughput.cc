// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/throughput.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "launch/bench/bench_engine.h"
#include "launch/bench/engine_load.h"
#include "launch/command_line.h"
#include "launch/output_file.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;

struct Options {
  EngineOptions engine;
  WorkloadOptions workload;
  SteadyConfig steady;
  std::int32_t max_concurrency = 0;
  bool steady_state = false, no_prefix_caching = false;
  std::string json, name;
};

std::optional<Options> parse(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  po::options_description description(
      "usage: tandem bench throughput --model MODEL [options]\n\nAll requests at once, from the "
      "first to the last token; or --steady-state: always --max-concurrency requests, the first of "
      "which begin in the middle of their answers so that equally many end at any time, counted "
      "for "
      "--duration seconds once each has given a token");
  // clang-format off
  description.add_options()
      ("steady-state", po::bool_switch(&options.steady_state), "measure a steady state instead of a whole set")
      ("max-concurrency", po::value(&options.max_concurrency)->default_value(0, "256"), "requests that run at once")
      ("duration", po::value(&options.steady.duration_s)->default_value(30, "30"), "steady state: seconds that are counted, in five parts")
      ("warmup", po::value(&options.steady.warmup_s)->default_value(2, "2"), "steady state: seconds before them")
      ("no-enable-prefix-caching", po::bool_switch(&options.no_prefix_caching), "do not reuse the cache of equal prompt beginnings")
      ("name", po::value(&options.name), "the model's name in the results; default: its folder's")
      ("output-json,json", po::value(&options.json), "write the results to this file; - is standard output")
      ("help,h", "this text");
  // clang-format on
  options.workload.add_to(description);
  options.engine.add_to(description);
  if (!parse_or_help(ranks.first(), "bench throughput", arguments, description))
    return std::nullopt;
  if (options.max_concurrency == 0) options.max_concurrency = 256;
  TANDEM_REQUIRE(options.max_concurrency > 0, "--max-concurrency must be at least 1, not ",
                 options.max_concurrency);
  TANDEM_REQUIRE(options.steady.duration_s > 0 && options.steady.warmup_s >= 0,
                 "--duration must be above 0 and --warmup not below it");
  options.steady.concurrency = options.max_concurrency;
  options.engine.max_num_seqs = options.max_concurrency;
  options.engine.max_num_batched_tokens =
      std::max(options.engine.max_num_batched_tokens, options.max_concurrency);
  options.steady.step_tokens = options.engine.max_num_batched_tokens;
  options.steady.mixed_step_tokens = options.engine.mixed_step_tokens;
  return options;
}

std::string case_name(const Options& options, const ModelSource& source,
                      const runtime::EngineConfig& config, const runtime::LoadReport& load,
                      int ranks, const Workload& workload) {
  std::string name = concat(case_label(options.name, source, config.dtype, load, ranks), " c",
                            options.max_concurrency, " ", workload.label);
  if (options.steady_state) name += " steady";
  if (options.no_prefix_caching) name += " no-reuse";
  return name;
}

void add_value(BenchResults& results, const std::string& name, const std::string& metric,
               const std::string& unit, const std::string& statistic, std::int64_t runs,
               double value) {
  results.add({name, metric, unit, value, 0, 0, false, static_cast<std::size_t>(runs), statistic});
}

void report(const std::string& name, const LoadCount& count, const Options& options,
            const Work& work, const Ceilings& ceilings, int ranks, const runtime::StepTimes& times,
            BenchResults& results) {
  const double floor_s = floor_seconds(work, count.work, ceilings);
  const auto rate = [&](double amount) { return amount / count.seconds; };
  const auto output = static_cast<double>(count.output_tokens);
  const double total = output + static_cast<double>(count.prompt_tokens);
  const double ceiling = floor_s > 0 ? output / floor_s : 0;
  results.add(name, "output_throughput", "tokens/s", count.output_per_s, ceiling, false);
  add_value(results, name, "request_throughput", "requests/s", "mean", 1,
            rate(static_cast<double>(count.requests)));
  add_value(results, name, "total_token_throughput", "tokens/s", "mean", 1, rate(total));
  add_value(results, name, "output_tokens_per_s_per_gpu", "tokens/s", "mean", 1,
            rate(output) / ranks);
  if (options.steady_state)
    add_value(results, name, "output_tokens_per_s_per_user", "tokens/s", "mean", 1,
              rate(output) / options.max_concurrency);
  const auto quantiles = [&](const std::string& metric,
                             const runtime::DurationHistogram& histogram) {
    if (histogram.count() == 0) return;
    add_value(results, name, metric, "us", "median", histogram.count(),
              1e6 * histogram.quantile(0.5));
    add_value(results, name, metric, "us", "p99", histogram.count(),
              1e6 * histogram.quantile(0.99));
  };
  quantiles("step_host_us", times.host);
  quantiles("step_submit_us", times.submit);
  quantiles("device_idle_bound_us", times.idle);
}

}  // namespace

int run_bench_throughput(Ranks& ranks, const std::vector<std::string>& arguments) {
  auto options = parse(ranks, arguments);
  if (!options) return 0;
  options->engine.validate(ranks.control.size(), "bench throughput");
  check_outputs(ranks, {{"--json", options->json}});
  Workload workload;
  ranks.control.together([&] { workload = make_workload(options->workload); });
  const ModelSource source = open_model(ranks, options->engine);
  const std::string device = choose_device(ranks, options->engine.device);
  const runtime::EngineConfig config = engine_config(ranks, options->engine, source.config, device);
  std::int64_t left_out = 0;
  ranks.control.together([&] {
    keep_fitting(workload, config.max_model_len, &left_out);
    choose_prompts(workload, options->workload);
  });
  const MadeEngine made =
      make_engine(ranks, device, options->engine, source.config, source.checkpoint, config);
  runtime::EngineLoop loop(
      ranks.control, *made.engine,
      {made.engine->limits(), !options->no_prefix_caching, source.config.eos_ids});
  const Ceilings ceilings =
      device == "cpu" ? measure_cpu_ceilings(config.threads) : gpu_ceilings(made.device_name);
  std::optional<ModelText> text;
  ranks.control.together([&] {
    if (ranks.first() && !workload.requests.front().text.empty())
      text.emplace(open_text(source.path));
  });
  if (!ranks.first()) {
    loop.follow();
    return 0;
  }
  const int size = ranks.control.size();
  if (left_out > 0)
    std::fprintf(stderr, "%lld requests are longer than --max-model-len %d and were left out\n",
                 static_cast<long long>(left_out), config.max_model_len);
  ranks.watchdog.progress().enter(comm::StageKind::kLoad, "making up requests");
  ProgressLine progress(ProgressLine::automatic(ranks.session.under_launcher()));
  EngineLoad load(
      loop, workload, PromptMaker(source.config.vocab_size, options->workload.seed),
      [&](const std::string& prompt) { return text->tokenizer.encode(prompt); }, progress);
  const LoadCount count = options->steady_state ? load.run_steady(options->steady) : load.run_all();
  loop.close();
  BenchResults results(device == "cpu" ? "throughput-cpu" : "throughput",
                       command_text(ranks, "bench throughput", arguments));
  report(case_name(*options, source, config, made.load, size, workload), count, *options,
         work_of(source.config, config.dtype, size, made.load), ceilings, size, loop.stats().times,
         results);
  const runtime::LoopStats stats = loop.stats();
  std::fprintf(stderr,
               "%s, %d rank%s: %lld requests, %lld prompt and %lld output tokens in %.1f s; %lld "
               "steps, %lld late; %lld preemptions\n",
               made.device_name.c_str(), size, size == 1 ? "" : "s",
               static_cast<long long>(count.requests), static_cast<long long>(count.prompt_tokens),
               static_cast<long long>(count.output_tokens), count.seconds,
               static_cast<long long>(stats.steps), static_cast<long long>(stats.times.late_steps),
               static_cast<long long>(stats.scheduler.preemptions));
  publish(results, options->json);
  return 0;
}

}  // namespace tandem::launch
