// SPDX-License-Identifier: Apache-2.0
// Matmuls through cuBLASLt: owns the handle, one workspace for the compute stream, a plan per
// exact shape and the cache of timed algorithms. An algorithm is timed once per bucket of m, and
// written to the file at once, while tuning is on. Never during a capture: there, and with tuning
// off, the heuristic's first is taken. Belongs to one `Context<Cuda>`; used from its step thread.
#pragma once

#include <map>
#include <memory>

#include "kernels/cuda/cublaslt_plan.h"
#include "kernels/cuda/decode_choice.h"
#include "kernels/device/buffer.h"
#include "kernels/device/cuda/context.h"
#include "kernels/linear.h"

namespace tandem::kernels {

/// An algorithm's 64 bytes mean something to one version of the library only.
using AlgorithmCache = MatmulCache<8>;

class CublasLt {
 public:
  explicit CublasLt(const CudaOptions& options);
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

  /// Enqueues y = x W^T on the compute stream. While tuning, the first call of a bucket also runs
  /// the candidates, with as many rows as the bucket's largest m, and waits for them.
  void matmul(Context<Cuda>& ctx, MatmulShape shape, const void* x, const void* w, void* y);

  /// Enqueues sum += scale * x W^T with one rounding. `scratch` of the same shape and stride takes
  /// the products of timed candidates.
  void add_matmul(Context<Cuda>& ctx, MatmulShape shape, const void* x, const void* w, float scale,
                  void* sum, void* scratch);

  /// Off: shapes that were not timed yet take the heuristic's choice.
  void set_tuning(bool on) { tuning_ = on; }
  /// Which kernel multiplies few rows; see `DecodeChoice`.
  DecodeKernel decode_kernel(Context<Cuda>& ctx, const MatmulShape& shape, const void* x,
                             const void* w, void* y) {
    return decode_choice_.kernel(ctx, tuning_, shape, x, w, y);
  }
  /// SMs later matmuls should fill, so that a communication kernel beside them finds room; 0: all.
  void set_sm_target(int sms) { sm_target_ = sms; }
  int num_tuned() const { return num_tuned_; }  ///< Shapes timed in this process.
  int num_choices_timed() const { return decode_choice_.num_timed(); }

 private:
  struct Operands;
  struct Enlarged;
  CublasLtPlan& plan_for(Context<Cuda>& ctx, const MatmulShape& shape, const Operands& operands);
  void choose_algorithm(Context<Cuda>& ctx, const MatmulShape& shape, const Operands& operands,
                        CublasLtPlan& plan);
  /// Of the candidates for a shape, the fastest on the operands.
  cublasLtMatmulAlgo_t fastest(Context<Cuda>& ctx, const MatmulShape& shape,
                               const Operands& operands);
  cublasStatus_t enqueue(Context<Cuda>& ctx, const CublasLtPlan& plan, const Operands& operands,
                         const cublasLtMatmulAlgo_t& algorithm);

  cublasLtHandle_t handle_ = nullptr;
  Buffer<std::byte, Cuda> workspace_;
  AlgorithmCache cache_;
  std::map<MatmulShape, std::unique_ptr<CublasLtPlan>> plans_;
  DecodeChoice decode_choice_;
  bool tuning_ = true;
  int sm_target_ = 0;
  int num_tuned_ = 0;
};

/// sum += scale * x W^T: x `[M, K]`, W `[N, K]`, sum and scratch `[M, N]` of equal strides. On the
/// compute stream.
template <typename T>
void add_matmul(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const LinearWeight<T, Cuda>& w,
                float scale, TensorView<T, Cuda> sum, TensorView<T, Cuda> scratch);

}  // namespace tandem::kernels
