// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/scaling_options.h"

#include <set>

#include "kernels/device/error.h"
#include "launch/command_line.h"
#include "launch/job_options.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;
using Words = std::vector<std::string>;

void add_own(po::options_description& description, ScalingOptions& options) {
  description.add_options()("help,h", "this text")(
      "sizes", po::value(&options.sizes)->multitoken(),
      "numbers of ranks; default: 1, 2, 4, ... up to the GPUs, cores or Slurm tasks there are")(
      "rounds", po::value(&options.rounds)->default_value(1),
      "times that all sizes are measured, in alternating order; medians over them")(
      "cluster", po::value(&options.cluster), "a file of cluster_configs/: where the ranks run")(
      "json", po::value(&options.json), "write the results to this file; - is standard output")(
      "csv", po::value(&options.csv), "write a table to this file")(
      "svg", po::value(&options.svg), "draw latency, throughput, speed-up and efficiency")(
      "skip-waits", po::bool_switch(&options.skip_waits),
      "leave out the last round, which reports where the time of each size goes")(
      "results", po::value(&options.results)->multitoken(),
      "start nothing: compare these files of bench latency --json")(
      "dry-run", po::bool_switch(&options.dry_run), "print what would be started, start nothing");
}

/// The words of `all` that are not in its subsequence `kept`.
Words without(const Words& all, const Words& kept) {
  Words rest;
  auto next = kept.begin();
  for (const std::string& word : all)
    if (next != kept.end() && *next == word)
      ++next;
    else
      rest.push_back(word);
  return rest;
}

}  // namespace

std::optional<ScalingOptions> parse_scaling_options(const Words& arguments) {
  ScalingOptions options;
  Words words = arguments;
  take_job_options(words);
  po::options_description own("usage: tandem bench scaling --model MODEL [options]"), all;
  add_own(own, options);
  std::set<std::string> own_names;
  for (const auto& option : own.options()) own_names.insert(option->long_name());
  options.latency.add_to(own);
  all.add(own);
  if (!parse_or_help(/*print_help=*/true, "bench scaling", words, all)) return std::nullopt;
  options.latency.validate();
  TANDEM_REQUIRE(options.latency.engine.tensor_parallel_size == 0,
                 "bench scaling takes the numbers of ranks from --sizes; leave out "
                 "--tensor-parallel-size");
  TANDEM_REQUIRE(options.rounds > 0, "--rounds must be at least 1, not ", options.rounds);
  const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  for (const auto& option : po::command_line_parser(words).options(all).style(style).run().options)
    if (own_names.count(option.string_key) == 0)
      options.passed_on.insert(options.passed_on.end(), option.original_tokens.begin(),
                               option.original_tokens.end());
  const Words job = without(arguments, words);
  options.passed_on.insert(options.passed_on.end(), job.begin(), job.end());
  return options;
}

}  // namespace tandem::launch
