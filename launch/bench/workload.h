// SPDX-License-Identifier: Apache-2.0
// The requests of a serving benchmark: random lengths, texts of a file, or a trace. Knows lengths,
// arrival times and prefix blocks; the tokens of a prompt are made when it is sent, because those
// of a long trace would not fit into memory. Immutable after construction.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace tandem::launch {

inline constexpr std::int32_t kMaxBenchTokens = 10'000'000;  ///< Of a prompt or an answer.
inline constexpr std::int32_t kMaxBenchRequests = 1'000'000;

struct BenchRequest {
  std::int64_t number = 0;           ///< Place in its data set.
  double at_s = 0;                   ///< Arrival after the first one's; traces only.
  std::int32_t input = 0;            ///< Prompt tokens; 0: `text` is the prompt.
  std::int32_t output = 0;           ///< Tokens to ask for.
  std::int32_t prefix = 0;           ///< Tokens in front that all requests share.
  std::vector<std::int64_t> blocks;  ///< Of traces: equal ids at equal places, equal tokens.
  std::string text;
};

/// Flags as vLLM's `bench` has them, and `--trace`.
struct WorkloadOptions {
  std::string dataset_name = "random", dataset_path, trace;
  std::int64_t num_prompts = 0;  ///< 0: 1000, or all of a file
  std::int64_t skip_prompts = 0;
  std::int32_t input_len = 1024, output_len = 128, prefix_len = 0;
  double range_ratio = 0, trace_sample = 1;
  std::uint64_t seed = 0;

  void add_to(boost::program_options::options_description& options);
  /// ConfigError for values out of range.
  void validate() const;
};

struct Workload {
  std::vector<BenchRequest> requests;
  std::vector<BenchRequest> history;  ///< Came just before the first of `requests`.
  bool timed = false;                 ///< `at_s` is set.
  bool has_lengths = true;  ///< The data set says how long answers are: they are not cut short.
  std::string label;        ///< "random in1024 out128", for results
};

/// Reads and samples, all there is; ConfigError when a file is missing or a line is wrong (named by
/// its number).
Workload make_workload(const WorkloadOptions& options);

/// Requests that fit into `max_model_len` tokens; how many do not is returned through `left_out`.
void keep_fitting(Workload& workload, std::int32_t max_model_len, std::int64_t* left_out);

/// Passes over `--skip-prompts` requests, of which the last `history` are kept as such, and keeps
/// `--num-prompts` of the rest. ConfigError when none is left.
void choose_prompts(Workload& workload, const WorkloadOptions& options, std::int64_t history = 0);

/// Makes prompts. Tokens are a function of (seed, run, block or request, place), so another `run`
/// finds nothing of this one in a prefix cache, but those of requests that were said to `last`.
class PromptMaker {
 public:
  PromptMaker(std::int64_t vocab_size, std::uint64_t seed) : vocab_size_(vocab_size), seed_(seed) {}
  void next_run() { ++run_; }
  /// From now on all runs have the same tokens for the blocks of `requests`.
  void last(const std::vector<BenchRequest>& requests);
  std::vector<std::int32_t> tokens(const BenchRequest& request) const;
  /// About `request.input` tokens as English words, for servers that only take text.
  std::string words(const BenchRequest& request) const;

 private:
  std::int64_t vocab_size_;
  std::uint64_t seed_, run_ = 0;
  std::unordered_set<std::int64_t> lasting_;
};

/// Seconds after the start at which `count` requests arrive at `rate` per second (infinite: all at
/// once): gaps from a Gamma distribution of shape `burstiness` (1: a Poisson process; below: in
/// bursts), scaled so that the mean rate is met exactly, as vLLM does.
std::vector<double> arrival_times(std::int64_t count, double rate, double burstiness,
                                  std::uint64_t seed);

}  // namespace tandem::launch
