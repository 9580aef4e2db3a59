// SPDX-License-Identifier: Apache-2.0
#include "launch/engine_factory.h"

#include <algorithm>
#include <numeric>

#include "kernels/device/log.h"
#include "runtime/model_report.h"

namespace tandem::launch {
namespace {

constexpr std::size_t kRanksNamed = 16;

std::vector<std::int64_t> gather(Ranks& ranks, std::int64_t mine) {
  std::vector<std::int64_t> all;
  for (const std::string& text : ranks.control.all_gather(std::to_string(mine)))
    all.push_back(std::stoll(text));
  return all;
}

/// "read of the checkpoint: rank 0 46.1 MB, rank 1 45.9 MB"; of many ranks the range.
std::string bytes_read_text(const std::vector<std::int64_t>& bytes) {
  std::string text = "read of the checkpoint: ";
  if (bytes.size() > kRanksNamed) {
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    return concat(text, runtime::bytes_text(*least), " to ", runtime::bytes_text(*most),
                  " on each of ", bytes.size(), " ranks");
  }
  for (std::size_t rank = 0; rank < bytes.size(); ++rank)
    text += concat(rank == 0 ? "" : ", ", "rank ", rank, " ", runtime::bytes_text(bytes[rank]));
  return text;
}

}  // namespace

MadeEngine make_engine(Ranks& ranks, const std::string& device, const EngineOptions& options,
                       const runtime::ModelConfig& model, const runtime::Checkpoint& checkpoint,
                       const runtime::EngineConfig& config) {
  const auto report = runtime::report_model(model, ranks.control.size(), config.dtype,
                                            config.keep_bits ? &checkpoint : nullptr);
  if (options.verbose)
    log_info("sharding\n", runtime::to_text(report));
  else if (ranks.control.size() > 1)
    log_info(runtime::imbalance_text(report));
  MadeEngine made = make_device_engine(ranks, device, options, model, checkpoint, config);
  made.bytes_read = gather(ranks, made.load.bytes_read);
  if (options.load_format != "dummy") log_info(bytes_read_text(made.bytes_read));
  return made;
}

comm::DeviceHooks hooks_of(runtime::Engine& engine) {
  return {[&engine] { return engine.device_error(); }, [&engine] { engine.abandon(); },
          [&engine] { return engine.device_position(); }};
}

MadeEngine make_cpu_engine(Ranks& ranks, const runtime::ModelConfig& model,
                           const runtime::Checkpoint& checkpoint,
                           const runtime::EngineConfig& config) {
  MadeEngine made;
  made.engine = runtime::make_cpu_engine(ranks.control, model, checkpoint, config, &made.load);
  made.watch = ranks.watchdog.watch(hooks_of(*made.engine));
  made.device_name =
      concat("cpu (", config.threads, config.threads == 1 ? " thread)" : " threads)");
  const std::int64_t peak = ranks.control.max(made.load.peak_resident_bytes);
  log_info("memory of this rank: weights ", runtime::bytes_text(made.load.weight_bytes),
           ", KV cache up to ", runtime::bytes_text(made.load.kv_cache_bytes),
           "; resident so far, on the largest rank: ", runtime::bytes_text(peak));
  return made;
}

}  // namespace tandem::launch
