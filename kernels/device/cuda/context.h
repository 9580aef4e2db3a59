// SPDX-License-Identifier: Apache-2.0
// What ops need to run on one GPU: three streams, matmul state, a stream-ordered pool. One per
// rank, made at start-up by the step thread, which is the only one that enqueues on it.
// Constructing it makes the GPU current for the calling thread; other threads call `make_current`
// first. Teardown: pool and matmul state before the streams; graphs and communicators are gone by
// then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device/buffer.h"
#include "kernels/device/cuda/stream.h"
#include "kernels/device/mem_sync_domains.h"
#include "kernels/device/op_timer.h"

namespace tandem {
namespace kernels {
class CublasLt;
}  // namespace kernels

/// Who multiplies few rows: whichever is the fastest for the shape, Tandem's kernels wherever they
/// can (up to 64 rows; up to 8 the streaming one first, or for tests and benches the skinny one),
/// or cuBLASLt always.
enum class DecodeMatmul { kAuto, kStreaming, kSkinny, kCublasLt };

struct CudaOptions {
  int device = 0;  ///< Ordinal among the visible GPUs.
  MemSyncDomains domains = MemSyncDomains::kAuto;
  bool programmatic_launch = true;                          ///< PDL edges between kernels of ours.
  std::size_t pool_threshold_bytes = std::size_t{1} << 30;  ///< Kept by the pool when unused.
  DecodeMatmul decode_matmul = DecodeMatmul::kAuto;
  std::string tuning_cache_folder;  ///< Empty: $XDG_CACHE_HOME/tandem or ~/.cache/tandem.
};

/// Stream-ordered memory of the pool: valid for work enqueued on the compute stream between
/// construction and destruction. Nothing waits on either side. Move-only.
class Temporary {
 public:
  Temporary(Temporary&& other) noexcept;
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary();
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  friend class Context<Cuda>;
  Temporary(void* data, cudaStream_t stream) : data_(data), stream_(stream) {}
  void* data_;
  cudaStream_t stream_;
};

template <>
class Context<Cuda> {
 public:
  /// ConfigError when the GPU is absent, or not one that this build has code for.
  explicit Context(const CudaOptions& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  int device() const { return options_.device; }
  const CudaOptions& options() const { return options_; }
  int num_sms() const { return num_sms_; }
  int num_domains() const { return num_domains_; }
  /// Physical domain of the comm stream and NCCL; equals that of compute (0) when shared.
  int comm_domain() const { return comm_.domain().physical_remote; }
  bool programmatic_launch() const { return options_.programmatic_launch; }

  Stream<Cuda>& compute() { return compute_; }  ///< Normal priority, domain 0.
  Stream<Cuda>& comm() { return comm_; }        ///< Highest priority, logical remote.
  Stream<Cuda>& copy() { return copy_; }        ///< Copy engines; token read-back.

  /// Fixed scratch of kernels that split a sum over blocks, used by one kernel of the compute
  /// stream at a time: partial results, and counters that are zero before and after every kernel.
  Span<float, Cuda> partials() const { return partials_.span(); }
  Span<std::int32_t, Cuda> counters() const { return counters_.span(); }
  static constexpr int kSquareSumRows = 64;
  /// Sums of squares that one kernel leaves to the next: [kSquareSumRows, SMs].
  Span<float, Cuda> square_sums() const { return square_sums_.span(); }

  /// Matmul handle, workspace and timed algorithms of the compute stream.
  kernels::CublasLt& cublaslt() { return *cublaslt_; }

  /// For prefill temporaries whose size varies. InternalError during a capture: graphs hold no
  /// allocation nodes.
  Temporary temporary(std::size_t size_bytes);
  /// Where ops are recorded, or null.
  Stamps<Cuda>* recorder() const { return recorder_; }
  void record_to(Stamps<Cuda>* recorder) { recorder_ = recorder; }
  std::int64_t num_kernels() const { return num_kernels_; }  ///< Enqueued so far, but for NCCL's.
  void count_kernel() { ++num_kernels_; }
  /// Makes this GPU current for the calling thread.
  void make_current() const;

 private:
  CudaOptions options_;
  int num_sms_ = 0, num_domains_ = 1;
  Stream<Cuda> compute_, comm_, copy_;
  cudaMemPool_t pool_ = nullptr;
  std::unique_ptr<kernels::CublasLt> cublaslt_;
  Buffer<float, Cuda> partials_, square_sums_;
  Buffer<std::int32_t, Cuda> counters_;
  Stamps<Cuda>* recorder_ = nullptr;
  std::int64_t num_kernels_ = 0;
};

/// Asynchronous copies, ordered on the compute stream or on the stream given. Host memory is a
/// `HostBuffer`; from pageable memory the call returns when the bytes are staged.
void copy_to_device(Context<Cuda>& ctx, void* device, const void* host, std::int64_t size_bytes);
void copy_to_host(Context<Cuda>& ctx, void* host, const void* device, std::int64_t size_bytes);
void copy_to_device(Stream<Cuda>& stream, void* device, const void* host, std::int64_t size_bytes);
void copy_to_host(Stream<Cuda>& stream, void* host, const void* device, std::int64_t size_bytes);
void copy_on_device(Context<Cuda>& ctx, void* to, const void* from, std::int64_t size_bytes);
void fill_zero(Context<Cuda>& ctx, void* device, std::int64_t size_bytes);

}  // namespace tandem
