// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/plan_options.h"

#include <algorithm>
#include <cmath>

#include "kernels/device/error.h"
#include "launch/command_line.h"
#include "runtime/text_file.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;

template <typename T>
auto list(std::vector<T>* values) {
  return po::value(values)->multitoken();
}

void validate(PlanOptions& options) {
  if (!options.check.empty()) {
    TANDEM_REQUIRE(!options.predicted.empty(),
                   "--check compares results with predictions; name those too: --predicted FILE, "
                   "made by tandem plan --json FILE");
    return;
  }
  TANDEM_REQUIRE(options.predicted.empty(),
                 "--predicted is compared with results; name them too: --check RESULT.json");
  TANDEM_REQUIRE(!options.model.empty(),
                 "no model was named; use tandem plan --model FOLDER --cluster FILE");
  TANDEM_REQUIRE(!options.cluster.empty() || !options.doctor.empty(),
                 "no machine was named; use --cluster cluster_configs/h200x8.ini, or --doctor FILE "
                 "made by tandem doctor --rates FILE");
  const auto positive = [](const char* flag, const std::vector<int>& values) {
    for (const int value : values)
      TANDEM_REQUIRE(value > 0, flag, " must be at least 1, not ", value);
  };
  if (options.batches.empty()) options.batches = {1};
  if (options.inputs.empty()) options.inputs = {128};
  positive("--tensor-parallel-size", options.sizes);
  positive("--batch", options.batches);
  positive("--input-len", options.inputs);
  positive("--prefill-len", options.prefills);
  positive("--output-len", {options.output_len});
  positive("--max-num-batched-tokens", {options.step_tokens});
  TANDEM_REQUIRE(options.memory_share > 0 && options.memory_share <= 1,
                 "--gpu-memory-utilization must lie in (0, 1], not ", options.memory_share);
  const std::vector<std::string> types{"auto", "bfloat16", "float16", "float32"};
  TANDEM_REQUIRE(std::find(types.begin(), types.end(), options.dtype) != types.end(), "--dtype ",
                 options.dtype, " is none of auto, bfloat16, float16, float32");
}

}  // namespace

std::optional<PlanOptions> parse_plan_options(bool print_help,
                                              const std::vector<std::string>& arguments) {
  PlanOptions options;
  po::options_description description(
      "usage: tandem plan --model MODEL --cluster FILE [options]\n"
      "       tandem plan --check RESULT.json... --predicted FILE");
  description.add_options()("model,m", po::value(&options.model),
                            "folder, .gguf file or hub name; only its config is read")(
      "cluster", po::value(&options.cluster), "a file of cluster_configs/")(
      "doctor", list(&options.doctor),
      "measured rates: files of tandem doctor --rates FILE, one per number of ranks")(
      "tensor-parallel-size,tp", list(&options.sizes),
      "numbers of ranks; default: 1, 2, 4, ... all of the cluster")(
      "batch,batch-size", list(&options.batches), "sequences that decode together; default 1")(
      "input-len", list(&options.inputs), "prompt tokens; default 128")(
      "output-len", po::value(&options.output_len)->default_value(128), "tokens of an answer")(
      "prefill-len", list(&options.prefills), "predict the time to the first token of these, too")(
      "dtype", po::value(&options.dtype)->default_value("auto"),
      "auto | bfloat16 | float16 | float32")("max-num-batched-tokens",
                                             po::value(&options.step_tokens)->default_value(2048),
                                             "token rows of one step")(
      "gpu-memory-utilization", po::value(&options.memory_share)->default_value(0.9, "0.9"),
      "share of a GPU's memory that Tandem may use")("name", po::value(&options.name),
                                                     "the model's name in the predictions")(
      "json", po::value(&options.json)->implicit_value("-"),
      "write plan and predictions to this file; - is standard output")(
      "sweep", po::value(&options.sweep),
      "draw tokens/s per rank against tokens/s per user, over batches, as SVG")(
      "check", list(&options.check), "results of bench latency --json to compare with --predicted")(
      "predicted", po::value(&options.predicted), "predictions made by plan --json")("help,h",
                                                                                     "this text");
  if (!parse_or_help(print_help, "plan", arguments, description)) return std::nullopt;
  validate(options);
  return options;
}

std::string read_text_file(const std::string& flag, const std::string& path,
                           const std::string& what) {
  auto text = runtime::read_text_file(path);
  TANDEM_REQUIRE(text, flag, ": cannot read ", path, "; name ", what);
  return *std::move(text);
}

RateSource::RateSource(const PlanOptions& options) {
  if (!options.cluster.empty()) cluster_ = read_cluster_config(options.cluster);
  for (const std::string& path : options.doctor)
    measured_.push_back(rates_from_doctor(
        path, read_text_file("--doctor", path, "the output of tandem doctor --rates FILE")));
  for (const DeviceRates& rates : measured_)
    TANDEM_REQUIRE(rates.device == measured_.front().device && rates.name == measured_.front().name,
                   "--doctor: ", rates.origin, " is of ", rates.name, " and ",
                   measured_.front().origin, " of ", measured_.front().name,
                   "; give files of one kind of machine");
}

int RateSource::largest() const {
  int ranks = cluster_ ? cluster_->world_size() : 1;
  for (const DeviceRates& rates : measured_) ranks = std::max(ranks, rates.ranks);
  return ranks;
}

DeviceRates RateSource::at(int ranks) const {
  if (measured_.empty()) return rates_of(*cluster_, ranks);
  const auto distance = [ranks](const DeviceRates& rates) {
    return std::abs(std::log2(double(rates.ranks) / ranks));
  };
  DeviceRates rates = *std::min_element(
      measured_.begin(), measured_.end(),
      [&](const DeviceRates& a, const DeviceRates& b) { return distance(a) < distance(b); });
  if (rates.ranks == ranks || ranks == 1) return rates;
  TANDEM_REQUIRE(cluster_, "messages between ", ranks,
                 " ranks were not measured; add --cluster FILE for its links, or --doctor with the "
                 "output of doctor --rates on ",
                 ranks, " ranks");
  rates.all_reduce = all_reduce_of(*cluster_, ranks);
  rates.ranks = ranks;
  return rates;
}

}  // namespace tandem::launch
