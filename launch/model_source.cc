// SPDX-License-Identifier: Apache-2.0
#include "launch/model_source.h"

#include <algorithm>
#include <cstdio>

#include "kernels/device/device_info.h"
#include "kernels/device/log.h"
#include "kvcache/kv_cache.h"
#include "launch/command_line.h"
#include "launch/placement.h"
#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "runtime/host_memory.h"
#include "runtime/model_report.h"
#include "runtime/text/template_source.h"
#include "runtime/weights/gguf_config.h"
#include "runtime/weights/model_path.h"

namespace tandem::launch {
namespace {

bool is_gguf(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

DType choose_dtype(const std::string& wanted, DType stored, const std::string& device) {
  if (wanted == "float32") return DType::kF32;
  if (wanted == "float16") return DType::kF16;
  if (wanted == "bfloat16") return DType::kBF16;
  // CPUs have no fast float16; its values fit bfloat16's range, and checkpoints of it are few.
  return stored == DType::kF16 && device == "cpu" ? DType::kBF16 : stored;
}

/// Bytes of one token on the rank that holds most KV heads.
std::int64_t largest_token_bytes(const runtime::ModelConfig& model, int ranks, DType dtype) {
  std::int64_t heads = 0;
  for (int rank = 0; rank < ranks; ++rank)
    heads = std::max(heads,
                     parallel::Shard(runtime::shard_shape(model), rank, ranks).kv_heads().size());
  return 2 * heads * model.head_dim * model.num_layers() * size_bytes(dtype);
}

/// Said before anything is loaded; silent when the ranks get equal parts.
void log_split(const runtime::ModelConfig& model, DType dtype, int ranks) {
  const runtime::ModelReport report = runtime::report_model(model, ranks, dtype);
  constexpr double kEqual = 1.02;
  if (report.imbalance < kEqual && report.duplicated_kv_bytes_per_token == 0) return;
  char share[16];
  std::snprintf(share, sizeof share, "%.2f", report.imbalance);
  log_info("the model does not divide evenly over ", ranks, " ranks: the largest part is ", share,
           " times the mean; ", report.duplicated_bytes >> 10, " KiB of weights and ",
           report.duplicated_kv_bytes_per_token, " bytes of KV cache per token are held twice");
}

}  // namespace

ModelSource open_model(Ranks& ranks, const EngineOptions& options) {
  std::optional<ModelSource> source;
  ranks.control.together([&] {
    const std::filesystem::path path = runtime::resolve_model_path(options.model);
    const bool dummy = options.load_format == "dummy";
    TANDEM_REQUIRE(options.load_format != "gguf" || is_gguf(path), "--load-format gguf, but ",
                   path.string(), " is no .gguf file; leave --load-format out");
    TANDEM_REQUIRE(options.load_format != "safetensors" || !is_gguf(path),
                   "--load-format safetensors, but ", path.string(),
                   " is a .gguf file; leave --load-format out");
    const runtime::ModelConfig config = runtime::read_model_config(path);
    source.emplace(ModelSource{path, config,
                               dummy ? runtime::Checkpoint::dummy(config, options.dummy_seed)
                                     : runtime::Checkpoint::open(path)});
    if (!dummy) source->checkpoint.require_fits(config);
  });
  return std::move(*source);
}

ModelText open_text(const std::filesystem::path& path) {
  if (!is_gguf(path)) {
    const runtime::TemplateSource source = runtime::find_chat_template(path);
    return {runtime::Tokenizer::from_folder(path), source.texts, source.bos_token,
            source.eos_token};
  }
  const runtime::GgufVocabulary vocabulary = runtime::read_gguf_vocabulary(path);
  const auto text_of = [&](std::optional<runtime::TokenId> id) {
    return id ? vocabulary.tokens.at(static_cast<std::size_t>(*id)) : std::string();
  };
  return {runtime::Tokenizer::from_gguf(vocabulary), runtime::read_gguf_chat_template(path),
          text_of(vocabulary.bos), text_of(vocabulary.eos)};
}

runtime::EngineConfig engine_config(const Ranks& ranks, const EngineOptions& options,
                                    const runtime::ModelConfig& model, const std::string& device) {
  runtime::EngineConfig config;
  config.dtype = choose_dtype(options.dtype, model.dtype, device);
  if (ranks.first()) log_split(model, config.dtype, ranks.control.size());
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.mixed_step_tokens = options.mixed_step_tokens;
  config.overlap = runtime::parse_overlap(options.overlap);
  const std::vector<Place> places = place_ranks(
      ranks.session, ranks.control, query_devices(),
      {device == "cuda", options.allow_shared_gpu, ranks.job.keep_binding, ranks.job.interfaces});
  if (options.verbose && ranks.first()) log_info("placement\n", placement_table(places));
  config.threads = options.threads > 0
                       ? options.threads
                       : places[static_cast<std::size_t>(ranks.session.rank())].threads;
  config.host_bytes = runtime::available_host_bytes() / ranks.session.local_size();
  // CPU ranks: a quarter of the free memory of the host, shared by its ranks.
  // CUDA ranks: 0, what --gpu-memory-utilization leaves.
  config.kv_cache_bytes = options.kv_cache_memory.empty()
                              ? device == "cuda" ? 0 : config.host_bytes / 4
                              : parse_bytes("--kv-cache-memory", options.kv_cache_memory);
  config.max_model_len = options.max_model_len > 0 ? options.max_model_len
                                                   : static_cast<std::int32_t>(model.max_position);
  TANDEM_REQUIRE(config.max_model_len <= model.max_position, "--max-model-len ",
                 config.max_model_len, " is longer than the ", model.max_position,
                 " positions that the model was made for; use --max-model-len ",
                 model.max_position);
  if (options.max_model_len == 0 && device == "cpu") {
    const std::int64_t fits =
        config.kv_cache_bytes / largest_token_bytes(model, ranks.control.size(), config.dtype);
    if (fits / 2 < config.max_model_len) {
      config.max_model_len = static_cast<std::int32_t>(std::max<std::int64_t>(fits / 2, 64));
      log_warn("the KV cache holds ", fits, " tokens: sequences are limited to ",
               config.max_model_len, " of the model's ", model.max_position);
    }
  }
  return config;
}

}  // namespace tandem::launch
