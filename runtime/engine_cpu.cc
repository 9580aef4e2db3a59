// SPDX-License-Identifier: Apache-2.0
// The engine of CPU ranks.
#include <chrono>
#include <optional>

#include "kernels/device/cpu/context.h"
#include "runtime/cache_plan.h"
#include "runtime/device_engine.inl"
#include "runtime/engine_config.h"
#include "runtime/host_memory.h"
#include "runtime/model_report.h"
#include "runtime/weights/model_loader.h"
#include "runtime/weights/weight_formats.h"

namespace tandem::runtime {
namespace {

/// Before anything is read: a host that runs out of memory kills processes without a word.
void require_room(const ModelConfig& model, const Checkpoint& checkpoint,
                  const parallel::Shard& shard, const EngineConfig& config) {
  if (config.host_bytes <= 0) return;
  const ModelReport report =
      report_model(model, shard.size(), config.dtype, config.keep_bits ? &checkpoint : nullptr);
  const auto mb = [](std::int64_t bytes) { return concat((bytes + 999'999) / 1'000'000, " MB"); };
  std::int64_t all = 0;
  for (const RankReport& rank : report.ranks) all += rank.cpu_weight_bytes;
  const std::int64_t mine = report.ranks[static_cast<std::size_t>(shard.rank())].cpu_weight_bytes;
  TANDEM_REQUIRE(mine <= config.host_bytes, model.name, " needs ", mb(mine),
                 " of memory for its weights on this rank (", mb(all),
                 " on all), but this rank's part of the host's free memory is ",
                 mb(config.host_bytes), ": start more ranks on more hosts, use a smaller model",
                 config.dtype == DType::kF32 ? ", or --dtype bfloat16" : "");
  const std::int64_t step = step_buffer_bytes(model, shard, config, shard.size());
  TANDEM_REQUIRE(mine + step <= config.host_bytes, "a step of ", config.max_num_batched_tokens,
                 " tokens and ", config.max_num_seqs, " sequences needs ", mb(step),
                 " beside the weights' ", mb(mine),
                 " on this rank, but its part of the host's free ", "memory is ",
                 mb(config.host_bytes), ": lower --max-num-batched-tokens or --max-num-seqs");
}

template <typename T>
std::unique_ptr<Engine> make_engine(comm::ControlPlane& control, const ModelConfig& model,
                                    const Checkpoint& checkpoint, const EngineConfig& config,
                                    LoadReport* report) {
  const auto start = std::chrono::steady_clock::now();
  auto context = std::make_unique<Context<Cpu>>(config.threads);
  const parallel::Shard shard(shard_shape(model), control.rank(),
                              config.shard_of > 0 ? config.shard_of : control.size());
  std::optional<Model<T, Cpu>> loaded;
  control.together(
      [&] { require_room(model, checkpoint, shard, config); });  // no rank reads before all may
  control.together([&] {
    loaded.emplace(ModelLoader<T, Cpu>(*context, checkpoint, model, shard, config.keep_bits)
                       .load(config.max_model_len));
  });
  const EngineLimits limits =
      plan_cache(control, model, shard, config, /*free_bytes=*/config.kv_cache_bytes);
  report->bytes_read = checkpoint.bytes_read();
  report->weight_bytes = loaded->weight_bytes;
  report->step_weight_bytes = loaded->weight_bytes - loaded->embedding.size_bytes();
  if (config.keep_bits && config.dtype == DType::kBF16)
    report->kept_format = main_format(checkpoint);
  typename DeviceEngine<T, Cpu>::Parts parts{
      std::move(context), nullptr, std::move(*loaded), limits, config.kv_segment_bytes, true};
  parts.rank = control.rank();
  parts.size = control.size();
  parts.limits.synchronous = true;
  // Nothing runs beside anything here: halves are for tests and measurements.
  const OverlapMode overlap =
      config.overlap == OverlapMode::kAuto ? OverlapMode::kOff : config.overlap;
  parts.overlap_min_tokens =
      overlap_min_tokens(control, overlap, config.max_num_batched_tokens, {});
  parts.progress = control.progress();
  parts.recorder = config.recorder;
  if (control.size() > 1) parts.communicator = std::make_unique<comm::Communicator<Cpu>>(control);
  std::unique_ptr<DeviceEngine<T, Cpu>> engine;
  control.together([&] { engine = std::make_unique<DeviceEngine<T, Cpu>>(std::move(parts)); });
  if (control.size() > 1 && overlap == OverlapMode::kOn)
    engine->exchange_rows(std::make_unique<comm::RowExchange<Cpu>>(engine->communicator()));
  report->kv_cache_bytes = std::int64_t{limits.num_chunks} * kernels::kChunkTokens *
                           report_model(model, shard.size(), config.dtype)
                               .ranks[static_cast<std::size_t>(shard.rank())]
                               .kv_bytes_per_token;
  report->peak_resident_bytes = peak_resident_bytes();
  report->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return engine;
}

}  // namespace

std::unique_ptr<Engine> make_cpu_engine(comm::ControlPlane& control, const ModelConfig& model,
                                        const Checkpoint& checkpoint, const EngineConfig& config,
                                        LoadReport* report) {
  if (config.dtype == DType::kBF16)
    return make_engine<BFloat16>(control, model, checkpoint, config, report);
  TANDEM_REQUIRE(
      config.dtype == DType::kF32,
      "CPU ranks compute in bfloat16 or float32; use --dtype bfloat16 or --dtype float32");
  return make_engine<float>(control, model, checkpoint, config, report);
}

}  // namespace tandem::runtime
