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

/// Bytes of one token on the rank that holds most KV heads.
std::int64_t largest_token_bytes(const runtime::ModelConfig& model, int ranks, DType dtype) {
  std::int64_t heads = 0;
  for (int rank = 0; rank < ranks; ++rank)
    heads = std::max(heads,
                     parallel::Shard(runtime::shard_shape(model), rank, ranks).kv_heads().size());
  return 2 * heads * model.head_dim * model.num_layers() * size_bytes(dtype);
}

/// CPU ranks: a quarter of what the host has available, shared by its ranks; equal on all ranks.
/// CUDA ranks: 0, what --gpu-memory-utilization leaves.
std::int64_t kv_cache_bytes(const Ranks& ranks, const EngineOptions& options,
                            const std::string& device) {
  if (!options.kv_cache_memory.empty())
    return parse_bytes("--kv-cache-memory", options.kv_cache_memory);
  if (device == "cuda") return 0;
  return ranks.control.min(runtime::available_host_bytes() / 4 / ranks.session.local_size());
}

/// What the user asked for, or as much of the model's own length as two sequences of it fit.
std::int32_t max_model_len(const Ranks& ranks, const EngineOptions& options,
                           const runtime::ModelConfig& model, const std::string& device,
                           const runtime::EngineConfig& config) {
  TANDEM_REQUIRE(options.max_model_len <= model.max_position, "--max-model-len ",
                 options.max_model_len, " is longer than the ", model.max_position,
                 " positions that the model was made for; use --max-model-len ",
                 model.max_position);
  if (options.max_model_len > 0) return options.max_model_len;
  const auto longest = static_cast<std::int32_t>(model.max_position);
  if (device != "cpu") return longest;
  const std::int64_t token_bytes = largest_token_bytes(model, ranks.control.size(), config.dtype);
  const std::int64_t fits = config.kv_cache_bytes / token_bytes;
  // One chunk is kept for padding rows, one is the least that a sequence can have.
  constexpr std::int64_t kLeast = 2 * kernels::kChunkTokens;
  TANDEM_REQUIRE(fits >= kLeast, "the KV cache has room for ", fits,
                 " tokens on a rank, too few to begin with; use --kv-cache-memory ",
                 (kLeast * token_bytes >> 10) + 1, "KiB or more");
  if (fits / 2 >= longest) return longest;
  log_warn("the KV cache holds ", fits, " tokens: sequences are limited to ", fits / 2,
           " of the model's ", model.max_position);
  return static_cast<std::int32_t>(fits / 2);
}

}  // namespace

DType choose_dtype(const std::string& wanted, DType stored, const std::string& device) {
  if (wanted == "float32") return DType::kF32;
  if (wanted == "float16") return DType::kF16;
  if (wanted == "bfloat16") return DType::kBF16;
  // CPUs have no fast float16; its values fit bfloat16's range, and checkpoints of it are few.
  return stored == DType::kF16 && device == "cpu" ? DType::kBF16 : stored;
}

ModelSource open_model(Ranks& ranks, const EngineOptions& options) {
  std::optional<ModelSource> source;
  ranks.control.together([&] {
    const std::filesystem::path path = runtime::resolve_model_path(options.model);
    const bool dummy = options.load_format == "dummy";
    TANDEM_REQUIRE(options.load_format != "gguf" || runtime::is_gguf(path),
                   "--load-format gguf, but ", path.string(),
                   " is no .gguf file; leave --load-format out");
    TANDEM_REQUIRE(options.load_format != "safetensors" || !runtime::is_gguf(path),
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
  if (!runtime::is_gguf(path)) {
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
  config.keep_bits = options.weight_format == "auto";
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
  config.kv_cache_bytes = kv_cache_bytes(ranks, options, device);
  config.max_model_len = max_model_len(ranks, options, model, device, config);
  return config;
}

}  // namespace tandem::launch
