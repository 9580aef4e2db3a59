// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/mixed.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "launch/bench/bench_engine.h"
#include "launch/command_line.h"
#include "launch/output_file.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

struct Options {
  EngineOptions engine;
  std::int32_t batch = 32, context = 128, prompt = 32768, alone_tokens = 96, runs = 3, warmup = 1;
  std::string json, name;
};

std::vector<std::int32_t> prompt_of(std::int32_t length, std::int64_t vocab_size,
                                    std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < length; ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(static_cast<std::int32_t>((seed >> 33) % static_cast<std::uint64_t>(vocab_size)));
  }
  return ids;
}

double p99(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.99);
}

/// When the tokens of the batch's sequences and of the long prompt arrived.
struct Arrivals {
  std::vector<std::vector<Clock::time_point>> batch;
  Clock::time_point submitted, first;
};

/// One run with the batch; `batch` 0 runs the long prompt alone.
class Run {
 public:
  Run(runtime::EngineLoop& loop, const Options& options, std::int64_t vocab_size,
      std::uint64_t seed)
      : loop_(loop), options_(options), vocab_size_(vocab_size), seed_(seed) {}

  Arrivals with_batch() {
    arrivals_.batch.resize(static_cast<std::size_t>(options_.batch));
    for (std::int32_t i = 0; i < options_.batch; ++i) {
      runtime::Request request;
      request.prompt =
          prompt_of(options_.context, vocab_size_, seed_ + 1 + static_cast<std::uint64_t>(i));
      request.params.max_tokens = options_.engine.max_model_len - options_.context;
      request.params.ignore_eos = true;
      ids_.push_back(loop_.submit(std::move(request), [this, i](const runtime::TokenEvent& event) {
        if (event.token >= 0) batch_token(static_cast<std::size_t>(i));
      }));
    }
    loop_.run_until_idle();
    return std::move(arrivals_);
  }
  Arrivals alone() {
    submit_prompt();
    loop_.run_until_idle();
    return std::move(arrivals_);
  }

 private:
  void batch_token(std::size_t sequence) {
    arrivals_.batch[sequence].push_back(Clock::now());
    if (prompted_) return;
    const auto warm = [this](const auto& times) {
      return times.size() >= static_cast<std::size_t>(options_.alone_tokens);
    };
    if (std::all_of(arrivals_.batch.begin(), arrivals_.batch.end(), warm)) submit_prompt();
  }
  void submit_prompt() {
    prompted_ = true;
    runtime::Request request;
    request.prompt = prompt_of(options_.prompt, vocab_size_, seed_);
    request.params.max_tokens = 1;
    request.params.ignore_eos = true;
    arrivals_.submitted = Clock::now();
    loop_.submit(std::move(request), [this](const runtime::TokenEvent& event) {
      if (event.token < 0) return;
      arrivals_.first = Clock::now();
      for (const runtime::RequestId id : ids_) loop_.cancel(id);
    });
  }

  runtime::EngineLoop& loop_;
  const Options& options_;
  std::int64_t vocab_size_;
  std::uint64_t seed_;
  bool prompted_ = false;
  std::vector<runtime::RequestId> ids_;
  Arrivals arrivals_;
};

/// Times per output token of every sequence within [begin, end], and all gaps there, in ms.
struct Pace {
  std::vector<double> tpot_ms, gaps_ms;
};
Pace pace_within(const Arrivals& arrivals, Clock::time_point begin, Clock::time_point end) {
  Pace pace;
  for (const auto& times : arrivals.batch) {
    double sum = 0;
    int count = 0;
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (times[i] < begin || times[i] > end) continue;
      const double gap = std::chrono::duration<double, std::milli>(times[i] - times[i - 1]).count();
      pace.gaps_ms.push_back(gap);
      sum += gap;
      ++count;
    }
    if (count > 0) pace.tpot_ms.push_back(sum / count);
  }
  TANDEM_REQUIRE(!pace.tpot_ms.empty(),
                 "the prompt was prefilled within one step of the batch: make it longer with "
                 "--prompt-len, or lower --max-num-mixed-tokens");
  return pace;
}

std::optional<Options> parse(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  options.engine.mixed_step_tokens = kServedMixedTokens;
  po::options_description description("usage: tandem bench mixed --model MODEL [options]");
  description.add_options()("batch-size", po::value(&options.batch)->default_value(options.batch),
                            "sequences that decode")(
      "input-len", po::value(&options.context)->default_value(options.context),
      "their prompt tokens")("prompt-len",
                             po::value(&options.prompt)->default_value(options.prompt),
                             "tokens of the long prompt")(
      "alone-len", po::value(&options.alone_tokens)->default_value(options.alone_tokens),
      "tokens of every sequence before the long prompt comes")(
      "num-iters", po::value(&options.runs)->default_value(options.runs), "timed runs")(
      "num-iters-warmup", po::value(&options.warmup)->default_value(options.warmup),
      "runs before them")("name", po::value(&options.name),
                          "the model's name in the results; default: its folder's")(
      "json", po::value(&options.json), "write the results to this file; - is standard output")(
      "help,h", "this text");
  options.engine.add_to(description);
  if (!parse_or_help(ranks.first(), "bench mixed", arguments, description)) return std::nullopt;
  for (const std::int32_t value : {options.batch, options.context, options.prompt, options.runs})
    TANDEM_REQUIRE(value > 0, "sizes and runs must be at least 1, not ", value);
  TANDEM_REQUIRE(options.alone_tokens > 16, "--alone-len must be at least 17, not ",
                 options.alone_tokens);
  options.engine.max_num_seqs = std::max(options.engine.max_num_seqs, options.batch + 1);
  options.engine.max_model_len =
      std::max(options.engine.max_model_len, options.prompt + options.context + 64);
  options.engine.validate(ranks.control.size(), "bench mixed");
  return options;
}

void run_cases(runtime::EngineLoop& loop, const Options& options, const std::string& label,
               std::int64_t vocab_size, BenchResults& results) {
  std::vector<double> before_p99, during_p99, gap_p99, tpot_ratio, ttft_alone, ttft_mixed,
      ttft_ratio;
  for (std::int32_t run = -options.warmup; run < options.runs; ++run) {
    const auto seed = static_cast<std::uint64_t>(run + options.warmup) * 1000 + 7;
    const Arrivals alone = Run(loop, options, vocab_size, seed).alone();
    const Arrivals mixed = Run(loop, options, vocab_size, seed + 500).with_batch();
    if (run < 0) continue;
    const auto ms = [](const Arrivals& a) {
      return std::chrono::duration<double, std::milli>(a.first - a.submitted).count();
    };
    // The first tokens of a sequence come while others are still prefilled.
    Clock::time_point steady = mixed.batch.front()[8];
    for (const auto& times : mixed.batch) steady = std::max(steady, times[8]);
    const Pace before = pace_within(mixed, steady, mixed.submitted),
               during = pace_within(mixed, mixed.submitted, mixed.first);
    before_p99.push_back(p99(before.tpot_ms));
    during_p99.push_back(p99(during.tpot_ms));
    gap_p99.push_back(p99(during.gaps_ms));
    tpot_ratio.push_back(during_p99.back() / before_p99.back());
    ttft_alone.push_back(ms(alone));
    ttft_mixed.push_back(ms(mixed));
    ttft_ratio.push_back(ttft_mixed.back() / ttft_alone.back());
  }
  results.add(label, "tpot_p99_before_ms", "ms", before_p99, 0, true);
  results.add(label, "tpot_p99_during_ms", "ms", during_p99, 0, true);
  results.add(label, "itl_p99_during_ms", "ms", gap_p99, 0, true);
  results.add(label, "tpot_ratio", "x", tpot_ratio, 2, true);
  results.add(label, "ttft_alone_ms", "ms", ttft_alone, 0, true);
  results.add(label, "ttft_mixed_ms", "ms", ttft_mixed, 0, true);
  results.add(label, "ttft_ratio", "x", ttft_ratio, 2, true);
}

}  // namespace

int run_bench_mixed(Ranks& ranks, const std::vector<std::string>& arguments) {
  const auto options = parse(ranks, arguments);
  if (!options) return 0;
  check_outputs(ranks, {{"--json", options->json}});
  const BenchEngine bench = make_bench_engine(ranks, options->engine);
  // No prefix cache: every run computes its prompts.
  runtime::Engine& engine = *bench.made.engine;
  runtime::EngineLoop loop(ranks.control, engine, {engine.limits(), false, {}});
  if (!ranks.first()) {
    loop.follow();
    return 0;
  }
  const std::string label =
      concat(case_label(options->name, bench.source, bench.config.dtype, bench.made.load,
                        ranks.control.size()),
             " batch", options->batch, " ctx", options->context, " beside prefill", options->prompt,
             " mixed", options->engine.mixed_step_tokens);
  BenchResults results(bench.device == "cpu" ? "mixed-cpu" : "mixed",
                       command_text(ranks, "bench mixed", arguments));
  run_cases(loop, *options, label, bench.source.config.vocab_size, results);
  loop.close();
  publish(results, options->json);
  return 0;
}

}  // namespace tandem::launch
