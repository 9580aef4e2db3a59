// SPDX-License-Identifier: Apache-2.0
#include "launch/plan_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "launch/bench/results.h"
#include "launch/bench/scaling_jobs.h"
#include "launch/launch_command.h"
#include "launch/output_file.h"
#include "launch/plan/plan_check.h"
#include "launch/plan/plan_options.h"
#include "launch/svg_chart.h"
#include "launch/text_table.h"
#include "runtime/model_report.h"
#include "runtime/weights/model_path.h"
#include "runtime/weights/weight_formats.h"

namespace tandem::launch {
namespace {

struct Planner {
  const PlanOptions& options;
  runtime::ModelConfig config;
  RateSource source;
  DType dtype;
  std::vector<int> sizes;

  explicit Planner(const PlanOptions& given)
      : options(given),
        config(runtime::read_model_config(runtime::resolve_model_path(given.model))),
        source(given),
        dtype(given.dtype == "float32"    ? DType::kF32
              : given.dtype == "float16"  ? DType::kF16
              : given.dtype == "bfloat16" ? DType::kBF16
                                          : config.dtype),
        sizes(given.sizes.empty() ? default_sizes(source.largest(), config) : given.sizes) {
    if (!options.name.empty()) config.name = options.name;
    for (const int size : sizes)
      static_cast<void>(runtime::report_model(config, size, dtype));  // throws what is wrong
    for (const int input : options.inputs)
      require_positions("--input-len", input, options.output_len);
    for (const int prefill : options.prefills) require_positions("--prefill-len", prefill, 1);
  }

  void require_positions(const char* flag, int tokens, int answer) const {
    TANDEM_REQUIRE(std::int64_t{tokens} + answer <= config.max_position, flag, " ", tokens, " and ",
                   answer, answer == 1 ? " token" : " tokens", " more do not fit into the ",
                   config.max_position, " positions that ", config.name,
                   " was made for; plan shorter ones");
  }

  Workload workload(int batch, int input) const {
    return {dtype, batch, input, options.output_len, options.step_tokens, options.memory_share};
  }
  std::string label(int ranks) const {
    const char* type = dtype == DType::kBF16 ? "bf16" : dtype == DType::kF16 ? "f16" : "f32";
    return concat(config.name, " ", type, " tp", ranks);
  }
};

/// The predictions, row by row as `bench latency` would name them.
void add_predictions(const Planner& planner, BenchResults& results) {
  for (const int ranks : planner.sizes) {
    const DeviceRates rates = planner.source.at(ranks);
    const PlannedModel model{planner.config, planner.dtype, ranks};
    const auto add = [&](const std::string& shape, const char* metric, double value, double floor) {
      results.add(
          {planner.label(ranks) + shape, metric, "ms", value, 0, floor, true, 1, "prediction"});
    };
    for (const int input : planner.options.inputs)
      for (const int batch : planner.options.batches) {
        const SizePlan plan =
            plan_size(planner.config, rates, ranks, planner.workload(batch, input));
        add(concat(" batch", batch, " ctx", input), "tpot_ms", plan.tpot_ms, plan.floor_ms);
      }
    // bench latency runs a prefill in one step.
    for (const int tokens : planner.options.prefills)
      add(concat(" batch1 prefill", tokens), "ttft_ms", ttft_ms(model, rates, tokens, tokens),
          prefill_cost(model, rates, tokens, 0, true).floor_us(rates) / 1000);
  }
}

/// Tokens per second of a rank against those of a user, over batches (Pope et al. 2022, figure 1).
std::string sweep_svg(const Planner& planner) {
  Chart chart{concat("Decode, context ", planner.options.inputs.front(), ", answer ",
                     planner.options.output_len, "; points: batch"),
              "tokens/s of one user",
              "tokens/s of one rank",
              {},
              true,
              true,
              {}};
  for (const int ranks : planner.sizes) {
    const DeviceRates rates = planner.source.at(ranks);
    ChartSeries series;
    series.name = concat(ranks, ranks == 1 ? " rank" : " ranks");
    for (int batch = 1; batch <= 1 << 16; batch *= 2) {
      const SizePlan plan = plan_size(planner.config, rates, ranks,
                                      planner.workload(batch, planner.options.inputs.front()));
      if (!plan.problem.empty()) break;
      const bool labelled = (batch & 0x55555555) != 0;  // 1, 4, 16, ...
      series.points.push_back({1000 / plan.tpot_ms, plan.tokens_per_s / ranks, 0,
                               labelled ? std::to_string(batch) : std::string()});
    }
    if (!series.points.empty()) chart.series.push_back(series);
  }
  TANDEM_REQUIRE(
      !chart.series.empty(),
      "--sweep: the model fits on no number of ranks that was asked for; plan more ranks "
      "or a shorter --input-len");
  return svg_page(planner.config.name + ": throughput against speed",
                  "rates of " + planner.source.at(planner.sizes.front()).origin, {chart});
}

int check(const PlanOptions& options) {
  std::vector<std::string> texts;
  for (const std::string& path : options.check)
    texts.push_back(read_text_file("--check", path, "results of tandem bench latency --json"));
  const auto rows = check_predictions(
      options.predicted,
      read_text_file("--predicted", options.predicted, "predictions of tandem plan --json"),
      options.check, texts);
  if (options.json != "-")
    std::printf("%slimit %.0f %%\n", check_table(rows).c_str(), 100 * kPlanErrorLimit);
  const std::string text = boost::json::serialize(to_json(rows)) + "\n";
  if (options.json == "-") std::fputs(text.c_str(), stdout);
  if (!options.json.empty() && options.json != "-") write_text_file("--json", options.json, text);
  return within_limit(rows) ? 0 : 1;
}

/// What CPU ranks of the default options would keep in few bits; "" for nothing.
std::string kept_format(const PlanOptions& options) {
  const auto path = runtime::resolve_model_path(options.model);
  return runtime::is_gguf(path) ? runtime::main_format(runtime::Checkpoint::open(path)) : "";
}

void print_plan(const Planner& planner, const std::vector<SizePlan>& plans) {
  const DeviceRates rates = planner.source.at(plans.front().ranks);
  std::printf("%s: %.2f billion parameters, %s, batch %d, %d + %d tokens; rates of %s (%s)\n\n",
              planner.config.name.c_str(), double(planner.config.num_parameters()) / 1e9,
              std::string(name(planner.dtype)).c_str(), planner.options.batches.front(),
              planner.options.inputs.front(), planner.options.output_len, rates.origin.c_str(),
              rates.name.c_str());
  std::printf("%s\n", plan_table(plans).c_str());
  const Choice choice = choose_size(plans, rates);
  const auto chosen = std::find_if(
      plans.begin(), plans.end(), [&](const SizePlan& plan) { return plan.ranks == choice.ranks; });
  std::printf("take %d rank%s:\n", choice.ranks, choice.ranks == 1 ? "" : "s");
  for (const std::string& reason : choice.reasons) std::printf("- %s\n", reason.c_str());
  std::printf("\nwhere a decode step on %d rank%s would wait:\n%s", choice.ranks,
              choice.ranks == 1 ? "" : "s",
              waits_table(*chosen, planner.source.at(choice.ranks)).c_str());
  if (rates.device != "cpu" || planner.dtype != DType::kBF16) return;
  if (const std::string kept = kept_format(planner.options); !kept.empty())
    std::printf(
        "\nplanned for weights made bfloat16 (--weight-format dense); CPU ranks keep %s of "
        "this file as it is, which takes less memory and fewer bytes a step\n",
        kept.c_str());
}

void write_json(const Planner& planner, const std::vector<SizePlan>& plans,
                const std::vector<std::string>& arguments) {
  BenchResults results("plan", concat("tandem plan ", quoted(arguments)));
  add_predictions(planner, results);
  const DeviceRates rates = planner.source.at(plans.front().ranks);
  const Choice choice = choose_size(plans, rates);
  // A plan is of the machine that its rates are of, wherever it is made.
  if (!rates.machine.empty()) results.set_origin(rates.machine, {});
  boost::json::array sizes;
  for (const SizePlan& plan : plans) sizes.push_back(to_json(plan));
  results.set_work({{"model", planner.config.name},
                    {"rates", rates.origin},
                    {"batch", planner.options.batches.front()},
                    {"input_len", planner.options.inputs.front()},
                    {"output_len", planner.options.output_len},
                    {"take_ranks", choice.ranks},
                    {"because", boost::json::array(choice.reasons.begin(), choice.reasons.end())},
                    {"sizes", std::move(sizes)}});
  results.write(planner.options.json);
}

int plan(const PlanOptions& options, const std::vector<std::string>& arguments) {
  check_outputs({{"--json", options.json}, {"--sweep", options.sweep}});
  const Planner planner(options);
  std::vector<SizePlan> plans;
  for (const int size : planner.sizes)
    plans.push_back(plan_size(planner.config, planner.source.at(size), size,
                              planner.workload(options.batches.front(), options.inputs.front())));
  if (options.json != "-") print_plan(planner, plans);
  if (!options.json.empty()) write_json(planner, plans, arguments);
  if (!options.sweep.empty()) write_text_file("--sweep", options.sweep, sweep_svg(planner));
  return 0;
}

}  // namespace

int run_plan(Ranks& ranks, const std::vector<std::string>& arguments) {
  const auto options = parse_plan_options(ranks.first(), arguments);
  if (!options) return 0;
  // One rank is enough; the others learn how it ended.
  int code = 0;
  ranks.control.together([&] {
    if (!ranks.first()) return;
    code = options->check.empty() ? plan(*options, arguments) : check(*options);
  });
  return static_cast<int>(ranks.control.max(code));
}

}  // namespace tandem::launch
