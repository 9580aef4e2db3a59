// SPDX-License-Identifier: Apache-2.0
// The engine of CUDA ranks.
#include <chrono>
#include <optional>

#include "comm/cuda_communicator.h"
#include "comm/row_exchange_cuda.h"
#include "kernels/cuda/attend_kernels.h"
#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/cuda/stamps.h"
#include "kernels/device/log.h"
#include "kvcache/virtual_range_cuda.h"
#include "runtime/cache_plan.h"
#include "runtime/device_engine.inl"
#include "runtime/engine_config.h"
#include "runtime/weights/model_loader.h"

namespace tandem::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

DecodeMatmul parse_decode_matmul(const std::string& text) {
  if (text == "streaming") return DecodeMatmul::kStreaming;
  if (text == "cublaslt") return DecodeMatmul::kCublasLt;
  TANDEM_REQUIRE(text == "auto", "--decode-matmul must be auto, streaming or cublaslt, not ", text);
  return DecodeMatmul::kAuto;
}

/// Memory that the cache may take on this GPU.
template <typename T>
std::int64_t cache_bytes(const Model<T, Cuda>& model, const EngineConfig& config, int ranks) {
  std::size_t free = 0, total = 0;
  TANDEM_CHECK(cudaMemGetInfo(&free, &total));
  const auto used = static_cast<std::int64_t>(total - free);
  const auto allowed =
      static_cast<std::int64_t>(config.cuda.memory_utilization * static_cast<double>(total));
  const std::int64_t budget = allowed - used -
                              step_buffer_bytes(model.config, model.shard, config, ranks) -
                              kCudaReserveBytes;
  return config.kv_cache_bytes > 0 ? std::min(budget, config.kv_cache_bytes) : budget;
}

/// Between hosts, or where peer memory does not work, halves keep to NCCL's all-reduces.
template <typename T>
void exchange_rows(comm::ControlPlane& control, DeviceEngine<T, Cuda>& engine) {
  const Decoder<T, Cuda>& decoder = engine.decoder();
  comm::ExchangedRows rows;
  rows.residual = reinterpret_cast<std::byte*>(decoder.residual().data());
  rows.normed = reinterpret_cast<std::byte*>(decoder.normed().data());
  rows.rows = engine.limits().max_num_batched_tokens;
  rows.row_bytes = decoder.residual().size_bytes() / rows.rows;
  std::string why;
  auto exchange = comm::RowExchange<Cuda>::connect(engine.context(), control, rows, why);
  if (exchange == nullptr && control.rank() == 0)
    log_info("overlapped prefill sums by NCCL: ", why);
  engine.exchange_rows(std::move(exchange));
}

template <typename T>
std::unique_ptr<Engine> make_engine(comm::ControlPlane& control, const ModelConfig& config,
                                    const Checkpoint& checkpoint, const EngineConfig& sizes,
                                    LoadReport* report) {
  const auto start = Clock::now();
  const parallel::Shard shard(shard_shape(config), control.rank(),
                              sizes.shard_of > 0 ? sizes.shard_of : control.size());
  std::unique_ptr<Context<Cuda>> context;
  std::optional<Model<T, Cuda>> model;
  control.together([&] {
    CudaOptions options;
    options.device = sizes.cuda.device;
    options.programmatic_launch = sizes.cuda.programmatic_launch;
    options.decode_matmul = parse_decode_matmul(sizes.cuda.decode_matmul);
    options.domains = parse_mem_sync_domains(sizes.cuda.mem_sync_domains);
    context = std::make_unique<Context<Cuda>>(options);
    model.emplace(
        ModelLoader<T, Cuda>(*context, checkpoint, config, shard).load(sizes.max_model_len));
  });
  const std::string fallback =
      kernels::prefill_attention_fallback(dtype_of<T>, config.head_dim, config.attention_softcap);
  if (!fallback.empty() && control.rank() == 0) log_info(fallback);
  report->load_seconds = seconds_since(start);
  report->bytes_read = checkpoint.bytes_read();
  report->weight_bytes = model->weight_bytes;

  std::unique_ptr<comm::Communicator<Cuda>> communicator;
  if (control.size() > 1) {
    comm::CudaCommunicatorOptions options;
    options.all_reduce = comm::parse_all_reduce(sizes.cuda.all_reduce);
    options.allow_shared_gpu = sizes.cuda.allow_shared_gpu;
    communicator = std::make_unique<comm::Communicator<Cuda>>(*context, control, options);
  }
  EngineLimits limits =
      plan_cache(control, config, shard, sizes, cache_bytes(*model, sizes, control.size()));
  limits.prefill_tile_tokens = kernels::kPrefillTileTokens;
  const int comm_domain = context->comm_domain();
  std::unique_ptr<DeviceEngine<T, Cuda>> engine;
  control.together([&] {
    typename DeviceEngine<T, Cuda>::Parts parts{std::move(context),     std::move(communicator),
                                                std::move(*model),      limits,
                                                sizes.kv_segment_bytes, !sizes.cuda.enforce_eager};
    parts.rank = control.rank();
    parts.size = control.size();
    parts.progress = control.progress();
    parts.recorder = sizes.recorder;
    engine = std::make_unique<DeviceEngine<T, Cuda>>(std::move(parts));
  });
  const auto prepare_start = Clock::now();
  engine->capture_decode_graphs();
  control.together([&] {
    engine->visit_graphs([&](const Graph<Cuda>& graph) { graph.require_domains(0, comm_domain); });
  });
  // Ranks on one GPU only take each other's time: there is nothing worth measuring.
  const bool on = sizes.overlap == OverlapMode::kOn;
  const OverlapMode overlap =
      on || !sizes.cuda.allow_shared_gpu ? sizes.overlap : OverlapMode::kOff;
  if (control.size() > 1 && overlap != OverlapMode::kOff) exchange_rows(control, *engine);
  engine->set_overlap_min_tokens(overlap_min_tokens(
      control, overlap, sizes.max_num_batched_tokens, [&](std::int32_t tokens, bool overlapped) {
        return engine->time_prefill(tokens, overlapped);
      }));
  report->prepare_seconds = seconds_since(prepare_start);
  report->seconds = seconds_since(start);
  return engine;
}

}  // namespace

std::unique_ptr<Engine> make_cuda_engine(comm::ControlPlane& control, const ModelConfig& model,
                                         const Checkpoint& checkpoint, const EngineConfig& config,
                                         LoadReport* report) {
  switch (config.dtype) {
    case DType::kBF16:
      return make_engine<BFloat16>(control, model, checkpoint, config, report);
    case DType::kF16:
      return make_engine<Float16>(control, model, checkpoint, config, report);
    case DType::kF32:
      return make_engine<float>(control, model, checkpoint, config, report);
  }
  throw InternalError("unknown data type");
}

}  // namespace tandem::runtime
