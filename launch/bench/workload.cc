// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/device/error.h"
#include "launch/bench/trace.h"

namespace tandem::launch {
namespace po = boost::program_options;
namespace {

/// The finaliser of SplitMix64 (Steele et al. 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return mix(a + 0x9e3779b97f4a7c15ull * (b + 1));
}

Workload random_workload(const WorkloadOptions& options) {
  Workload workload;
  workload.label =
      concat("random in", options.prefix_len + options.input_len, " out", options.output_len);
  if (options.range_ratio > 0) workload.label += concat(" +-", 100 * options.range_ratio, "%");
  std::mt19937_64 random(options.seed);
  const auto length = [&](std::int32_t middle) {
    const auto low = static_cast<std::int32_t>(std::floor(middle * (1 - options.range_ratio)));
    const auto high = static_cast<std::int32_t>(std::ceil(middle * (1 + options.range_ratio)));
    return std::uniform_int_distribution<std::int32_t>(std::max(low, 1), std::max(high, 1))(random);
  };
  const std::int64_t count =
      options.skip_prompts + (options.num_prompts > 0 ? options.num_prompts : 1000);
  for (std::int64_t i = 0; i < count; ++i) {
    BenchRequest request;
    request.number = i;
    request.input = options.prefix_len + length(options.input_len);
    request.output = length(options.output_len);
    request.prefix = options.prefix_len;
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

/// One conversation in ten at `share` 0.1, all turns or none: reuse stays as it is in the whole.
void sample_conversations(std::vector<BenchRequest>& requests, double share, std::uint64_t seed) {
  std::erase_if(requests, [&](const BenchRequest& request) {
    // The first block is a system prompt that all have; the second tells conversations apart.
    const std::int64_t key =
        request.blocks.empty()
            ? request.number
            : request.blocks[std::min<std::size_t>(1, request.blocks.size() - 1)];
    return static_cast<double>(mix(seed, static_cast<std::uint64_t>(key)) >> 11) >= share * 0x1p53;
  });
}

}  // namespace

void WorkloadOptions::add_to(po::options_description& options) {
  po::options_description data("Requests");
  data.add_options()("dataset-name", po::value(&dataset_name)->default_value(dataset_name),
                     "random | sharegpt | custom")(
      "dataset-path", po::value(&dataset_path),
      "sharegpt: JSON or JSON lines of conversations; custom: JSON lines of {\"prompt\", "
      "\"output_tokens\"}")(
      "trace", po::value(&trace),
      "azure:FILE or mooncake:FILE: lengths, times and prefixes of real requests")(
      "trace-sample", po::value(&trace_sample)->default_value(1, "1"),
      "share of a trace's conversations to keep, each with all its turns")(
      "num-prompts", po::value(&num_prompts)->default_value(0, "1000, or all of a file"),
      "requests")("skip-prompts", po::value(&skip_prompts)->default_value(0),
                  "requests to pass over before the first")(
      "input-len,random-input-len", po::value(&input_len)->default_value(input_len),
      "random: prompt tokens")("output-len", po::value(&output_len)->default_value(output_len),
                               "tokens of an answer, where the data set does not say")(
      "random-range-ratio", po::value(&range_ratio)->default_value(0, "0"),
      "random: lengths lie in [(1 - r) len, (1 + r) len]")(
      "random-prefix-len", po::value(&prefix_len)->default_value(0),
      "random: tokens in front that all prompts share")("seed", po::value(&seed)->default_value(0),
                                                        "seed of lengths and arrivals");
  options.add(data);
}

void WorkloadOptions::validate() const {
  const auto within = [](const char* flag, std::int64_t value, std::int64_t least,
                         std::int64_t most) {
    TANDEM_REQUIRE(least <= value && value <= most, flag, " must lie between ", least, " and ",
                   most, "; it is ", value);
  };
  within("--num-prompts", num_prompts, 0, kMaxBenchRequests);
  within("--skip-prompts", skip_prompts, 0, kMaxBenchRequests);
  within("--input-len", input_len, 1, kMaxBenchTokens);
  within("--output-len", output_len, 1, kMaxBenchTokens);
  within("--random-prefix-len", prefix_len, 0, kMaxBenchTokens);
  TANDEM_REQUIRE(range_ratio >= 0 && range_ratio < 1,
                 "--random-range-ratio must lie in [0, 1), not ", range_ratio);
  TANDEM_REQUIRE(trace_sample > 0 && trace_sample <= 1, "--trace-sample must lie in (0, 1], not ",
                 trace_sample);
  TANDEM_REQUIRE(dataset_name == "random" || dataset_name == "sharegpt" || dataset_name == "custom",
                 "--dataset-name ", dataset_name, " is not known; use random, sharegpt or custom");
  TANDEM_REQUIRE(dataset_name == "random" || !dataset_path.empty(), "--dataset-name ", dataset_name,
                 " needs a file; add --dataset-path FILE");
}

Workload make_workload(const WorkloadOptions& options) {
  options.validate();
  if (options.trace.empty() && options.dataset_name == "random") return random_workload(options);
  Workload workload;
  if (!options.trace.empty()) {
    workload.timed = true;
    workload.requests = read_trace(options.trace);
    if (options.trace_sample < 1)
      sample_conversations(workload.requests, options.trace_sample, options.seed);
    workload.label = options.trace.substr(0, options.trace.find(':')) + " trace";
    if (options.trace_sample < 1) workload.label += concat(" sample", options.trace_sample);
  } else {
    workload.requests = read_texts(options.dataset_name, options.dataset_path, options.output_len);
    workload.has_lengths = false;
    workload.label = options.dataset_name;
  }
  TANDEM_REQUIRE(!workload.requests.empty(), workload.label,
                 " has no request; use a larger file or --trace-sample 1");
  return workload;
}

void keep_fitting(Workload& workload, std::int32_t max_model_len, std::int64_t* left_out) {
  *left_out =
      static_cast<std::int64_t>(std::erase_if(workload.requests, [&](const BenchRequest& request) {
        return request.input + request.output > max_model_len;
      }));
  TANDEM_REQUIRE(!workload.requests.empty(), "no request of ", workload.label, " fits into ",
                 max_model_len,
                 " tokens; serve with a larger --max-model-len or choose shorter requests");
}

void choose_prompts(Workload& workload, const WorkloadOptions& options, std::int64_t history) {
  std::vector<BenchRequest>& requests = workload.requests;
  const auto size = static_cast<std::int64_t>(requests.size());
  TANDEM_REQUIRE(options.skip_prompts < size, "--skip-prompts ", options.skip_prompts,
                 " leaves none of the ", size, " requests of ", workload.label,
                 "; pass over fewer");
  const auto first = requests.begin() + options.skip_prompts;
  workload.history.assign(first - std::min(history, options.skip_prompts), first);
  requests.erase(requests.begin(), first);
  if (options.num_prompts > 0 && options.num_prompts < size - options.skip_prompts)
    requests.resize(static_cast<std::size_t>(options.num_prompts));
  if (options.skip_prompts > 0) workload.label += concat(" from", options.skip_prompts);
  const double begin = requests.front().at_s;
  for (BenchRequest& request : requests) request.at_s -= begin;
}

void PromptMaker::last(const std::vector<BenchRequest>& requests) {
  for (const BenchRequest& request : requests)
    lasting_.insert(request.blocks.begin(), request.blocks.end());
}

std::vector<std::int32_t> PromptMaker::tokens(const BenchRequest& request) const {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(request.input));
  const std::uint64_t run = mix(seed_, run_);
  const std::uint64_t always = mix(seed_, ~std::uint64_t{0});
  const std::uint64_t own = mix(run, ~static_cast<std::uint64_t>(request.number));
  for (std::int32_t i = 0; i < request.input; ++i) {
    const auto block = static_cast<std::size_t>(i / kBlockTokens);
    std::uint64_t key = i < request.prefix ? run : own;
    if (block < request.blocks.size()) {
      const std::int64_t id = request.blocks[block];
      key = mix(mix(lasting_.contains(id) ? always : run, 1), static_cast<std::uint64_t>(id));
    }
    const std::uint64_t bits = mix(key, static_cast<std::uint64_t>(i)) >> 33;
    ids.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocab_size_)));
  }
  return ids;
}

std::string PromptMaker::words(const BenchRequest& request) const {
  static constexpr const char* kWords[] = {
      "the", "of",   "and", "to",  "in",   "is",   "that", "it",   "was",  "for",  "on",
      "are", "with", "as",  "his", "they", "at",   "be",   "this", "from", "have", "or",
      "by",  "one",  "had", "not", "but",  "what", "all",  "were", "when", "we"};
  PromptMaker indices(*this);
  indices.vocab_size_ = std::size(kWords);
  std::string text;
  for (const std::int32_t index : indices.tokens(request)) {
    if (!text.empty()) text += ' ';
    text += kWords[index];
  }
  return text;
}

std::vector<double> arrival_times(std::int64_t count, double rate, double burstiness,
                                  std::uint64_t seed) {
  std::vector<double> times(static_cast<std::size_t>(count), 0.0);
  if (!std::isfinite(rate) || count < 2) return times;
  std::mt19937_64 random(mix(seed, 2));
  std::gamma_distribution<double> gap(burstiness, 1 / (rate * burstiness));
  for (std::size_t i = 1; i < times.size(); ++i) times[i] = times[i - 1] + gap(random);
  const double scale = times.back() > 0 ? static_cast<double>(count - 1) / rate / times.back() : 0;
  for (double& time : times) time *= scale;
  return times;
}

}  // namespace tandem::launch
