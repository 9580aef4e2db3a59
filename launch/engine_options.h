// SPDX-License-Identifier: Apache-2.0
// The options that every command with a model shares: which model, which device, which sizes.
// Plain values, equal on all ranks.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <string>

namespace tandem::launch {

/// Rows of a mixed step where answers are streamed: on an H200 a step of an 8B model then stays
/// within twice the time of a decode step of 32 sequences.
inline constexpr std::int32_t kServedMixedTokens = 256;

struct EngineOptions {
  std::string model;
  std::string device = "auto";         ///< auto, cpu, cuda
  std::string dtype = "auto";          ///< auto, bfloat16, float16, float32
  std::string load_format = "auto";    ///< auto, safetensors, gguf, dummy
  std::string weight_format = "auto";  ///< auto, dense
  std::string kv_cache_memory;         ///< Bytes with unit; empty: chosen by the device
  double gpu_memory_utilization = 0.9;
  int tensor_parallel_size = 0;    ///< 0: the world size
  std::int32_t max_model_len = 0;  ///< 0: the model's own, bounded
  std::int32_t max_num_seqs = 16;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t mixed_step_tokens = 0;  ///< 0: no bound of its own
  int threads = 0;                     ///< 0: this rank's share of the cores
  std::uint64_t dummy_seed = 0;
  bool enforce_eager = false;
  bool allow_shared_gpu = false;
  std::string mem_sync_domains = "auto";
  std::string all_reduce = "auto";
  std::string decode_matmul = "auto";
  std::string overlap = "auto";  ///< auto, on, off
  bool verbose = false;

  /// Adds these options to `options`; parsed values land in this object.
  void add_to(boost::program_options::options_description& options);
  /// ConfigError for a value out of range, or a tensor-parallel size unlike `world_size`.
  void validate(int world_size, const std::string& command) const;
};

}  // namespace tandem::launch
