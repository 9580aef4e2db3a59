// SPDX-License-Identifier: Apache-2.0
// What an engine is built from, apart from the model: sizes that the user may set, and which
// device. Equal on all ranks. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/control_plane.h"
#include "kernels/device/dtype.h"
#include "runtime/engine.h"
#include "runtime/model_config.h"
#include "runtime/overlap_mode.h"
#include "runtime/weights/checkpoint.h"

namespace tandem {
class Recorder;
}

namespace tandem::runtime {

/// What only CUDA ranks look at; words as the flags have them.
struct CudaEngineConfig {
  int device = 0;                   ///< Ordinal of this rank's GPU.
  double memory_utilization = 0.9;  ///< Share of the GPU's memory that may be used.
  bool enforce_eager = false;       ///< No graphs.
  bool allow_shared_gpu = false;
  std::string mem_sync_domains = "auto";
  std::string all_reduce = "auto";
  std::string decode_matmul = "auto";
  bool programmatic_launch = true;  ///< Kernels of a step may start early.
};

struct EngineConfig {
  DType dtype = DType::kBF16;  ///< Of weights, activations and cache.
  std::int32_t max_model_len = 4096;
  std::int32_t max_num_seqs = 16;
  std::int32_t max_num_batched_tokens = 512;
  std::int32_t mixed_step_tokens = 0;        ///< See EngineLimits.
  std::int64_t kv_cache_bytes = 0;           ///< Per rank, at most.
  std::int64_t kv_segment_bytes = 64 << 20;  ///< One step of growth.
  OverlapMode overlap = OverlapMode::kAuto;  ///< Sums of prefill under its computation.
  /// CPU ranks of bfloat16: matrices that a file has in few bits are kept and multiplied so.
  bool keep_bits = true;
  int threads = 1;  ///< CPU ranks: OpenMP threads of this rank.
  /// CPU ranks: this rank's part of the host's free memory; 0: unknown, nothing is checked.
  std::int64_t host_bytes = 0;
  /// Of one rank: it runs the first shard of so many, and communication is left out. 0: the job's.
  int shard_of = 0;
  CudaEngineConfig cuda;         ///< CUDA ranks only.
  Recorder* recorder = nullptr;  ///< Records this rank's steps; outlives the engine. Null: none.
};

/// What loading cost this rank.
struct LoadReport {
  double seconds = 0;
  std::int64_t bytes_read = 0;                   ///< Of the checkpoint's files.
  std::int64_t weight_bytes = 0;                 ///< On the device.
  std::int64_t step_weight_bytes = 0;            ///< Of these, what a decode step reads.
  std::string kept_format;                       ///< "q4_1": what most weights stayed in; or empty.
  std::int64_t kv_cache_bytes = 0;               ///< That the cache may grow to.
  std::int64_t peak_resident_bytes = 0;          ///< Of this process, up to here (CPU ranks).
  double load_seconds = 0, prepare_seconds = 0;  ///< Weights; tuning and capture of graphs.
};

/// Loads this rank's slice and makes its engine. Collective over `control`; a fault on one rank is
/// thrown on all. `control` outlives the engine.
std::unique_ptr<Engine> make_cpu_engine(comm::ControlPlane& control, const ModelConfig& model,
                                        const Checkpoint& checkpoint, const EngineConfig& config,
                                        LoadReport* report);
std::unique_ptr<Engine> make_cuda_engine(comm::ControlPlane& control, const ModelConfig& model,
                                         const Checkpoint& checkpoint, const EngineConfig& config,
                                         LoadReport* report);

}  // namespace tandem::runtime
