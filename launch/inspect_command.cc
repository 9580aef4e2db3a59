// SPDX-License-Identifier: Apache-2.0
#include "launch/inspect_command.h"

#include <boost/json.hpp>
#include <cstdio>
#include <map>
#include <optional>

#include "launch/command_line.h"
#include "launch/model_source.h"
#include "runtime/model_report.h"
#include "runtime/weights/dequantize.h"
#include "runtime/weights/model_path.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;
namespace po = boost::program_options;

struct Options {
  std::string model, dtype = "auto";
  int tensor_parallel_size = 0;  ///< 0: the world size
  bool json = false;
};

/// The weight files, by the types that their tensors are stored in.
struct StoredWeights {
  std::size_t num_tensors = 0;
  std::map<std::string, std::int64_t> bytes_by_type;
  std::int64_t size_bytes() const {
    std::int64_t total = 0;
    for (const auto& [type, bytes] : bytes_by_type) total += bytes;
    return total;
  }
};

/// Nothing when there is a config.json alone. ConfigError when the files are damaged or do not
/// belong to `config`.
std::optional<runtime::Checkpoint> open_weights(const std::filesystem::path& path,
                                                const runtime::ModelConfig& config) {
  if (!runtime::is_gguf(path) && !runtime::has_safetensors(path)) return std::nullopt;
  auto checkpoint = runtime::Checkpoint::open(path);
  checkpoint.require_fits(config);
  return checkpoint;
}

std::optional<StoredWeights> stored_weights(const std::optional<runtime::Checkpoint>& checkpoint) {
  if (!checkpoint) return std::nullopt;
  StoredWeights stored;
  stored.num_tensors = checkpoint->tensors().size();
  for (const auto& [name, entry] : checkpoint->tensors())
    stored.bytes_by_type[std::string(runtime::name(entry.type))] += entry.size_bytes;
  return stored;
}

std::string to_text(const std::optional<StoredWeights>& stored) {
  if (!stored)
    return "no weight files beside config.json: only --load-format dummy can run it\n";
  std::string text = concat("stored: ", stored->num_tensors, " tensors, ",
                            runtime::bytes_text(stored->size_bytes()));
  const char* separator = " (";
  for (const auto& [type, bytes] : stored->bytes_by_type) {
    text += concat(separator, type, " ", runtime::bytes_text(bytes));
    separator = ", ";
  }
  return text + ")\n";
}

json::value to_json(const std::optional<StoredWeights>& stored) {
  if (!stored) return nullptr;
  return {{"tensors", stored->num_tensors},
          {"bytes", stored->size_bytes()},
          {"bytes_by_type", json::value_from(stored->bytes_by_type)}};
}

void inspect(const Options& options) {
  const std::filesystem::path path = runtime::resolve_model_path(options.model);
  const runtime::ModelConfig config = runtime::read_model_config(path);
  const auto checkpoint = open_weights(path, config);
  const auto stored = stored_weights(checkpoint);
  const runtime::ModelReport report =
      runtime::report_model(config, options.tensor_parallel_size,
                            choose_dtype(options.dtype, config.dtype, /*device=*/"any"),
                            checkpoint ? &*checkpoint : nullptr);
  if (!options.json) {
    std::fputs((runtime::to_text(report) + to_text(stored)).c_str(), stdout);
    return;
  }
  json::object object = runtime::to_json(report);
  object["stored"] = to_json(stored);
  std::printf("%s\n", json::serialize(object).c_str());
}

}  // namespace

int run_inspect(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  options.tensor_parallel_size = ranks.control.size();
  po::options_description description(
      "usage: tandem inspect --model MODEL [--tensor-parallel-size N] [options]");
  description.add_options()
      ("model,m", po::value(&options.model), "folder, .gguf file or hub name; a folder with config.json alone will do")
      ("tensor-parallel-size,tp", po::value(&options.tensor_parallel_size)->default_value(options.tensor_parallel_size, "world size"), "ranks to deal the model to; none need be started")
      ("dtype", po::value(&options.dtype)->default_value(options.dtype), "auto (as stored) | bfloat16 | float16 | float32")
      ("json", po::bool_switch(&options.json), "one JSON object on standard output")
      ("help,h", "this text");
  if (!parse_or_help(ranks.first(), "inspect", arguments, description)) return 0;
  TANDEM_REQUIRE(!options.model.empty(),
                 "no model was named; use tandem inspect --model FOLDER, --model FILE.gguf or "
                 "--model org/name");
  require_one_of("--dtype", options.dtype, {"auto", "bfloat16", "float16", "float32"});
  TANDEM_REQUIRE(options.tensor_parallel_size > 0,
                 "--tensor-parallel-size must be at least 1, not ", options.tensor_parallel_size);
  ranks.control.on_first([&] { inspect(options); });
  return 0;
}

}  // namespace tandem::launch
