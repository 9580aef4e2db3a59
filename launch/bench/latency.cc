// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/latency.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "launch/bench/bench_engine.h"
#include "launch/bench/breakdown.h"
#include "launch/bench/latency_options.h"
#include "launch/bench/work.h"
#include "launch/bench/workload.h"
#include "launch/command_line.h"
#include "launch/output_file.h"
#include "launch/text_table.h"
#include "launch/waits/session.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

/// One shape: `batch` sequences of `input` tokens; `output` 1 measures the prefill only.
struct Shape {
  std::int32_t batch = 1, input = 0, output = 1;
};

struct Sample {
  double ttft_ms = 0, tpot_ms = 0;
};

/// Runs one shape once. TPOT is taken over the last sequence to start: while it decodes, all do.
Sample measure(runtime::EngineLoop& loop, PromptMaker& prompts, const Shape& shape) {
  prompts.next_run();
  struct Sequence {
    runtime::RequestId id = 0;
    std::int32_t tokens = 0;
    Clock::time_point first, last;
  };
  std::vector<Sequence> sequences(static_cast<std::size_t>(shape.batch));
  std::int32_t started = 0;
  Sequence* slowest = nullptr;
  const auto start = Clock::now();
  for (Sequence& sequence : sequences) {
    BenchRequest prompt;
    prompt.number = &sequence - sequences.data();
    prompt.input = shape.input;
    runtime::Request request;
    request.prompt = prompts.tokens(prompt);
    // The early ones go on until the last one is done.
    request.params.max_tokens = shape.output == 1 ? 1 : shape.output + shape.batch * 64;
    request.params.ignore_eos = true;
    sequence.id = loop.submit(std::move(request), [&](const runtime::TokenEvent& event) {
      if (event.token < 0) return;
      Sequence& mine = *std::find_if(sequences.begin(), sequences.end(),
                                     [&](const Sequence& s) { return s.id == event.request; });
      mine.last = Clock::now();
      if (++mine.tokens == 1) {
        mine.first = mine.last;
        if (++started == shape.batch) slowest = &mine;
      }
      if (&mine == slowest && mine.tokens == shape.output && shape.output > 1)
        for (const Sequence& other : sequences) loop.cancel(other.id);
    });
  }
  loop.run_until_idle();
  Sample sample;
  sample.ttft_ms = milliseconds(start, sequences.front().first);
  if (shape.output > 1) {
    const Sequence& timed = *slowest;
    sample.tpot_ms = milliseconds(timed.first, timed.last) / (timed.tokens - 1);
  }
  return sample;
}

double decode_floor_ms(const Work& work, const Shape& shape, const Ceilings& ceilings) {
  if (ceilings.read_gb_per_s <= 0) return 0;
  const double kv_tokens = shape.batch * (shape.input + shape.output / 2.0);
  return (work.weight_bytes + kv_tokens * work.kv_bytes_per_token) / ceilings.read_gb_per_s / 1e6;
}

double prefill_floor_ms(const Work& work, const Shape& shape, const Ceilings& ceilings) {
  if (ceilings.matmul_tflops <= 0) return 0;
  const double tokens = shape.input, pairs = tokens * (tokens + 1) / 2;
  const double flops = 2 * work.matmul_parameters * tokens + work.attention_flops_per_pair * pairs;
  return flops / ceilings.matmul_tflops / 1e9;
}

std::string case_name(const std::string& label, const Shape& shape) {
  return concat(label, " batch", shape.batch, shape.output > 1 ? " ctx" : " prefill", shape.input);
}

std::vector<Shape> shapes_of(const LatencyOptions& options) {
  std::vector<Shape> shapes;
  for (const std::int32_t context : options.contexts)
    for (const std::int32_t batch : options.batches)
      shapes.push_back({batch, context, options.output_len});
  for (const std::int32_t tokens : options.prefills) shapes.push_back({1, tokens, 1});
  return shapes;
}

/// Grows the engine's sizes so that every shape runs as asked: all sequences at once, and each
/// prefill in one step.
void fit_engine(LatencyOptions& options, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    const std::int32_t length = shape.input + shape.output + shape.batch * 64;
    options.engine.max_num_seqs = std::max(options.engine.max_num_seqs, shape.batch);
    options.engine.max_model_len = std::max(options.engine.max_model_len, length);
    options.engine.max_num_batched_tokens =
        std::max({options.engine.max_num_batched_tokens, options.engine.max_num_seqs,
                  shape.output == 1 ? shape.input : 0});
  }
}

/// For people: tokens per second, and the rate of the hardware that they stand against.
std::string rate_text(const std::string& name, double tokens_per_s, double share,
                      const Ceilings& ceilings, bool decode) {
  const std::string text = concat(name, ": ", decimal(tokens_per_s, 1), " tokens/s");
  if (share <= 0) return text;
  return concat(text, ", ", decimal(100 * share, 1), " % of the measured ",
                decode ? concat("read bandwidth, ", decimal(ceilings.read_gb_per_s, 1), " GB/s")
                       : concat("matmul rate, ", decimal(ceilings.matmul_tflops, 3), " TFLOP/s"),
                " per rank");
}

void run_shapes(runtime::EngineLoop& loop, const LatencyOptions& options,
                const std::vector<Shape>& shapes, const std::string& label, const Work& work,
                const Ceilings& ceilings, std::int64_t vocab_size, BenchResults& results) {
  PromptMaker prompts(vocab_size, 20240229);
  for (const Shape& shape : shapes) {
    std::vector<double> ttft, tpot;
    for (std::int32_t run = -options.warmup; run < options.runs; ++run) {
      const Sample sample = measure(loop, prompts, shape);
      if (run < 0) continue;
      ttft.push_back(sample.ttft_ms);
      tpot.push_back(sample.tpot_ms);
    }
    const bool decode = shape.output > 1;
    const std::string name = case_name(label, shape);
    std::vector<double>& samples = decode ? tpot : ttft;
    const double floor_ms =
        decode ? decode_floor_ms(work, shape, ceilings) : prefill_floor_ms(work, shape, ceilings);
    results.add(name, decode ? "tpot_ms" : "ttft_ms", "ms", samples, floor_ms, true);
    std::sort(samples.begin(), samples.end());
    const double ms = samples[samples.size() / 2];
    const std::int32_t tokens = decode ? shape.batch : shape.input;
    results.note(rate_text(name, 1e3 * tokens / ms, floor_ms / ms, ceilings, decode));
  }
}

/// Prefills with their sums in a memory sync domain of their own and in that of the computation, in
/// turns. The domain is toggled between two loops, on all ranks.
void run_both_domains(Ranks& ranks, runtime::Engine& engine, const LatencyOptions& options,
                      const std::vector<Shape>& shapes, const std::string& label,
                      std::int64_t vocab_size, BenchResults& results) {
  PromptMaker prompts(vocab_size, 20240229);
  for (const Shape& shape : shapes) {
    if (shape.output > 1) continue;  // Decode graphs have one domain.
    std::vector<double> separate, shared, saved;
    for (std::int32_t run = -options.warmup; run < options.runs; ++run)
      for (const bool share : {false, true}) {
        runtime::PrefillTrial trial;
        trial.shared_domain = share;
        engine.set_trial(trial);
        runtime::EngineLoop loop(ranks.control, engine, {engine.limits(), false, {}});
        if (!ranks.first()) {
          loop.follow();
          continue;
        }
        const double ttft_ms = measure(loop, prompts, shape).ttft_ms;
        loop.close();
        if (run >= 0) (share ? shared : separate).push_back(ttft_ms);
      }
    if (!ranks.first()) continue;
    for (std::size_t i = 0; i < shared.size(); ++i) saved.push_back(shared[i] - separate[i]);
    const std::string name = case_name(label, shape);
    results.add(name + " separate domains", "ttft_ms", "ms", separate, 0, true);
    results.add(name + " same domain", "ttft_ms", "ms", shared, 0, true);
    results.add(name, "saved_by_separation_ms", "ms", saved, 0, false);
    const MedianSpread worth = median_spread(saved);
    if (std::abs(worth.median) <= 3 * worth.spread)
      std::fprintf(stderr, "%s: no effect of separate domains seen\n", name.c_str());
  }
}

/// One more run of each shape, recorded: on all ranks, so that all of them capture the graphs with
/// stamps. Each has a loop of its own, between which no rank is in a step.
void run_breakdowns(Ranks& ranks, const MadeEngine& made, Recorder& recorder,
                    const std::vector<Shape>& shapes, const std::string& label,
                    const runtime::ModelConfig& model, const Ceilings& ceilings, int runs,
                    BenchResults& results) {
  PromptMaker prompts(model.vocab_size, 20240229);
  recorder.pause(false);
  for (const Shape& shape : shapes) {
    RecorderMark mark(recorder);
    for (int run = 0; run < 2; ++run) {  // The first one makes graphs.
      mark = RecorderMark(recorder);
      runtime::EngineLoop loop(ranks.control, *made.engine, {made.engine->limits(), false, {}});
      loop.record_to(&recorder);
      // A prefill is one step.
      for (int i = 0; ranks.first() && i < (shape.output > 1 ? 1 : runs); ++i)
        measure(loop, prompts, shape);
      if (ranks.first())
        loop.close();
      else
        loop.follow();
      made.engine->finish_recording();
    }
    if (!ranks.first()) continue;
    const bool decode = shape.output > 1;
    const Breakdown breakdown = break_down(
        recorder, mark, decode ? shape.batch : 0, decode ? 0 : shape.input,
        static_cast<std::size_t>(model.num_layers()), made.engine->limits().synchronous, ceilings);
    const std::string name = case_name(label, shape);
    results.note(breakdown_table(name, breakdown));
    add_rows(name, breakdown, results);
  }
}

/// What `bench latency` and `bench shard` have beside the options of the cases.
struct OutputOptions {
  std::string json_path;
  WaitsOptions waits;
  bool breakdown = false;
};

std::optional<LatencyOptions> parse(Ranks& ranks, const std::string& kind,
                                    const std::vector<std::string>& arguments,
                                    OutputOptions* output) {
  LatencyOptions options;
  po::options_description description(
      concat("usage: tandem bench ", kind, " --model MODEL [options]"));
  // clang-format off
  description.add_options()
      ("breakdown", po::bool_switch(&output->breakdown), "run each case once more, and print the kernels of a layer and of a step: bytes, microseconds, share of the ceiling")
      ("json", po::value(&output->json_path), "write the results to this file; - is standard output")
      ("help,h", "this text");
  // clang-format on
  output->waits.add_to(description);
  options.add_to(description);
  if (!parse_or_help(ranks.first(), concat("bench ", kind), arguments, description))
    return std::nullopt;
  options.validate();
  TANDEM_REQUIRE(!output->breakdown || (!output->waits.wanted() && !options.both_domains),
                 "--breakdown records a run of its own; leave out --waits and "
                 "--mem-sync-domains=both, or run them without --breakdown");
  return options;
}

/// What another run must share to be compared with this one.
boost::json::object work_json(const LatencyOptions& options, const runtime::EngineConfig& config,
                              const runtime::ModelConfig& model, const std::string& device,
                              const std::string& name, int ranks) {
  boost::json::object work{{"model", name},
                           {"dtype", std::string(tandem::name(config.dtype))},
                           {"parameters", model.num_parameters()},
                           {"layers", model.num_layers()},
                           {"hidden_size", model.hidden_size},
                           {"intermediate_size", model.intermediate_size},
                           {"heads", model.num_heads},
                           {"kv_heads", model.num_kv_heads},
                           {"vocab_size", model.vocab_size},
                           {"device", device},
                           {"output_len", options.output_len},
                           {"max_num_batched_tokens", config.max_num_batched_tokens},
                           {"ranks", ranks}};
  if (device == "cpu") work["threads"] = config.threads;
  return work;
}

/// Takes the number of shards out of the options; 0 for `bench latency`.
int take_shards(Ranks& ranks, const std::string& kind, EngineOptions& engine) {
  if (kind != "shard") return 0;
  TANDEM_REQUIRE(ranks.control.size() == 1,
                 "bench shard runs one rank's work on one rank; start it without mpirun");
  TANDEM_REQUIRE(engine.tensor_parallel_size > 1,
                 "bench shard needs the number of shards; add --tensor-parallel-size 8");
  return std::exchange(engine.tensor_parallel_size, 0);
}

int run(Ranks& ranks, const std::string& kind, const std::vector<std::string>& arguments) {
  OutputOptions output;
  auto options = parse(ranks, kind, arguments, &output);
  if (!options) return 0;
  check_outputs(ranks, {{"--json", output.json_path}});
  const int shards = take_shards(ranks, kind, options->engine);
  const std::vector<Shape> shapes = shapes_of(*options);
  fit_engine(*options, shapes);
  options->engine.validate(ranks.control.size(), concat("bench ", kind));
  const ModelSource source = open_model(ranks, options->engine);
  const std::string device = choose_device(ranks, options->engine.device);
  runtime::EngineConfig config = engine_config(ranks, options->engine, source.config, device);
  WaitsSession session(ranks, output.waits);
  std::optional<Recorder> for_breakdown;
  if (output.breakdown) for_breakdown.emplace().pause(true);
  config.recorder = output.breakdown ? &*for_breakdown : session.recorder();
  config.shard_of = shards;
  const MadeEngine made =
      make_engine(ranks, device, options->engine, source.config, source.checkpoint, config);
  session.calibrate(made, device, config.threads);
  const Ceilings ceilings =
      device == "cpu" ? measure_cpu_ceilings(config.threads) : gpu_ceilings(made.device_name);
  ranks.control.barrier();  // or the first step would wait for the rank that measures longest
  const WaitsFacts facts{source.config.name, command_text(ranks, concat("bench ", kind), arguments),
                         0};
  const int ranks_run = ranks.control.size(), size = shards > 0 ? shards : ranks_run;
  const std::string name = options->name.empty() ? source.config.name : options->name;
  const std::string label = case_label(name, source, config.dtype, made.load, size);
  BenchResults results(device == "cpu" ? concat(kind, "-cpu") : kind, facts.command);
  boost::json::object work = work_json(*options, config, source.config, device, name, size);
  if (!made.load.kept_format.empty()) work["weights"] = made.load.kept_format;
  results.set_work(std::move(work));
  if (options->both_domains) {
    run_both_domains(ranks, *made.engine, *options, shapes, label, source.config.vocab_size,
                     results);
  } else {
    runtime::EngineLoop loop(ranks.control, *made.engine, {made.engine->limits(), false, {}});
    loop.record_to(session.recorder());
    if (ranks.first()) {
      run_shapes(loop, *options, shapes, label,
                 work_of(source.config, config.dtype, size, made.load), ceilings,
                 source.config.vocab_size, results);
      loop.close();
    } else {
      loop.follow();
    }
  }
  if (output.breakdown)
    run_breakdowns(ranks, made, *for_breakdown, shapes, label, source.config, ceilings,
                   options->runs, results);
  if (!ranks.first()) {
    session.finish(made, facts);
    return 0;
  }
  std::fprintf(stderr, "%s, %d rank%s, load %.1f s (weights %.1f s, tuning and graphs %.1f s)\n",
               made.device_name.c_str(), ranks_run, ranks_run == 1 ? "" : "s", made.load.seconds,
               made.load.load_seconds, made.load.prepare_seconds);
  publish(results, output.json_path);
  session.finish(made, facts);
  return 0;
}

}  // namespace

int run_bench_latency(Ranks& ranks, const std::vector<std::string>& arguments) {
  return run(ranks, "latency", arguments);
}

int run_bench_shard(Ranks& ranks, const std::vector<std::string>& arguments) {
  return run(ranks, "shard", arguments);
}

}  // namespace tandem::launch
