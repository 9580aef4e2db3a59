// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/overlap.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "launch/bench/bench_engine.h"
#include "launch/command_line.h"
#include "launch/output_file.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

struct Options {
  EngineOptions engine;
  std::vector<std::int32_t> prefills;
  std::int32_t runs = 7, warmup = 2;
  std::string json, name;
};

/// One way to run a step, and its seconds, the slowest rank's, run by run.
struct Way {
  bool overlapped = false;
  runtime::PrefillTrial trial;
  std::vector<double> seconds;
};

/// Steps of one prompt that takes all rows, made alike on every rank.
class Prefills {
 public:
  Prefills(Ranks& ranks, runtime::Engine& engine, std::int64_t vocab_size)
      : ranks_(ranks), engine_(engine), vocab_size_(vocab_size) {}

  /// Seconds of one step on the slowest rank.
  double time(std::int32_t tokens, const Way& way) {
    runtime::BatchPlan plan;
    plan.step = step_++;
    plan.inits.emplace_back();
    const std::int32_t chunks = (tokens + kernels::kChunkTokens - 1) / kernels::kChunkTokens;
    for (std::int32_t i = 0; i < chunks; ++i) plan.assigns.push_back({0, i, 1 + i});
    plan.mapped_chunks = std::max(engine_.limits().mapped_chunks, chunks + 1);
    runtime::PrefillSegment segment;
    segment.sample = true;
    for (std::int32_t i = 0; i < tokens; ++i)
      segment.tokens.push_back(
          static_cast<std::int32_t>((i * std::int64_t{7919} + 11) % vocab_size_));
    plan.segments.push_back(std::move(segment));
    plan.max_kv_tokens = tokens;
    engine_.set_overlap_min_tokens(way.overlapped ? 2 : runtime::kNeverOverlap);
    engine_.set_trial(way.trial);
    ranks_.control.barrier();
    const auto start = Clock::now();
    engine_.submit(plan);
    engine_.collect();
    const double mine = std::chrono::duration<double>(Clock::now() - start).count();
    return static_cast<double>(ranks_.control.max(std::llround(mine * 1e9))) / 1e9;
  }

 private:
  Ranks& ranks_;
  runtime::Engine& engine_;
  std::int64_t vocab_size_, step_ = 0;
};

std::optional<Options> parse(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  po::options_description description(
      "usage: mpirun -n RANKS tandem bench overlap --model MODEL [options]");
  description.add_options()(
      "prefill-len",
      po::value(&options.prefills)->multitoken()->default_value({512, 2048, 8192}, "512 2048 8192"),
      "prompt tokens of a step; several give several cases")(
      "num-iters", po::value(&options.runs)->default_value(options.runs), "timed runs of each way")(
      "num-iters-warmup", po::value(&options.warmup)->default_value(options.warmup),
      "runs before them")("name", po::value(&options.name),
                          "the model's name in the results; default: its folder's")(
      "json", po::value(&options.json), "write the results to this file; - is standard output")(
      "help,h", "this text");
  options.engine.add_to(description);
  if (!parse_or_help(ranks.first(), "bench overlap", arguments, description)) return std::nullopt;
  TANDEM_REQUIRE(ranks.control.size() > 1,
                 "bench overlap needs at least two ranks, one exchanges nothing that could be "
                 "overlapped: run mpirun -n 2 tandem bench overlap ...");
  for (const std::int32_t tokens : options.prefills) {
    TANDEM_REQUIRE(tokens > 1, "--prefill-len must be at least 2, not ", tokens);
    options.engine.max_model_len = std::max(options.engine.max_model_len, tokens + 1);
    options.engine.max_num_batched_tokens = std::max(options.engine.max_num_batched_tokens, tokens);
  }
  TANDEM_REQUIRE(options.runs > 0, "--num-iters must be at least 1, not ", options.runs);
  options.engine.validate(ranks.control.size(), "bench overlap");
  options.engine.overlap = "on";
  return options;
}

/// Overlap off, then on: whole step, computation alone, communication alone.
std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const bool overlapped : {false, true})
    for (const runtime::PrefillTrial trial :
         {runtime::PrefillTrial{true, true}, {true, false}, {false, true}})
      ways.push_back({overlapped, trial, {}});
  return ways;
}

/// `a[i] - b[i]`, not below 0.
std::vector<double> excess(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(std::max(0.0, a[i] - b[i]));
  return result;
}

/// Adds the four numbers of one setting to the results; returns its line for people.
std::vector<std::string> add_setting(BenchResults& results, const std::string& name,
                                     std::int64_t layers, const Way* ways) {
  const auto per_layer = [&](std::vector<double> seconds) {
    for (double& value : seconds) value *= 1e6 / static_cast<double>(layers);
    return seconds;
  };
  const std::vector<double> step = per_layer(ways[0].seconds), compute = per_layer(ways[1].seconds),
                            sums = per_layer(ways[2].seconds), exposed = excess(step, compute);
  const std::string full = concat(name, " overlap ", ways[0].overlapped ? "on" : "off");
  results.add(full, "layer_us", "us", step, 0, true);
  results.add(full, "layer_compute_us", "us", compute, 0, true);
  results.add(full, "layer_communication_us", "us", sums, 0, true);
  results.add(full, "layer_exposed_us", "us", exposed, 0, true);
  std::vector<std::string> line{name, ways[0].overlapped ? "on" : "off"};
  for (const auto* values : {&step, &compute, &sums, &exposed}) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", median_spread(*values).median);
    line.emplace_back(text);
  }
  return line;
}

}  // namespace

int run_bench_overlap(Ranks& ranks, const std::vector<std::string>& arguments) {
  const auto options = parse(ranks, arguments);
  if (!options) return 0;
  check_outputs(ranks, {{"--json", options->json}});
  const BenchEngine bench = make_bench_engine(ranks, options->engine);
  const runtime::ModelConfig& model = bench.source.config;
  const int size = ranks.control.size();
  const std::string label =
      case_label(options->name, bench.source, bench.config.dtype, bench.made.load, size);
  BenchResults results(bench.device == "cpu" ? "overlap-cpu" : "overlap",
                       command_text(ranks, "bench overlap", arguments));
  std::vector<std::vector<std::string>> lines{
      {"per layer, us", "overlap", "step", "compute", "communication", "exposed"}};
  Prefills prefills(ranks, *bench.made.engine, model.vocab_size);
  for (const std::int32_t tokens : options->prefills) {
    std::vector<Way> ways = all_ways();
    for (std::int32_t run = -options->warmup; run < options->runs; ++run)
      for (Way& way : ways) {
        const double seconds = prefills.time(tokens, way);
        if (run >= 0) way.seconds.push_back(seconds);
      }
    for (const std::size_t first : {std::size_t{0}, ways.size() / 2})
      lines.push_back(add_setting(results, concat(label, " prefill", tokens), model.num_layers(),
                                  ways.data() + first));
  }
  if (!ranks.first()) return 0;
  std::fprintf(stderr, "%s, %d ranks\n", bench.made.device_name.c_str(), size);
  if (options->json != "-") std::fputs(text_table(lines).c_str(), stdout);
  if (!options->json.empty()) results.write(options->json);
  return 0;
}

}  // namespace tandem::launch
