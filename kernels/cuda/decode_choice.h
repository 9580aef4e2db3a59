// SPDX-License-Identifier: Apache-2.0
// Which kernel multiplies few rows on this GPU: one of Tandem's two or cuBLASLt. Decided per shape
// (and bucket of rows) by timing them on the caller's buffers, once: the times are kept in a file,
// for the build's kernels alone (`cuda_revision`). What was not timed follows a rule. Belongs to
// one `CublasLt`; used from its step thread.
#pragma once

#include <optional>

#include "kernels/cuda/matmul_cache.h"
#include "kernels/device/cuda/context.h"

namespace tandem::kernels {

/// Names the CUDA kernels of this build: the hash of their sources and compiler
/// (`cuda_revision.cmake`), so that no change of a kernel can leave it as it was.
const char* cuda_revision();

enum class DecodeKernel { kLibrary, kGemv, kSkinny };

class DecodeChoice {
 public:
  explicit DecodeChoice(TuningFile file) : times_(std::move(file)) {}

  /// For a shape that one of ours can multiply. The first call of a shape outside of a capture,
  /// while `tuning`, writes y and waits for all candidates.
  DecodeKernel kernel(Context<Cuda>& ctx, bool tuning, const MatmulShape& shape, const void* x,
                      const void* w, void* y);
  /// The choice, if the shape's bucket was timed, by this process or one before.
  std::optional<DecodeKernel> kept(const MatmulShape& shape) const;
  int num_timed() const { return num_timed_; }  ///< Shapes timed in this process.

 private:
  /// ns: of the streaming kernel and the skinny one, or 0 where there is none; of cuBLASLt.
  MatmulCache<3> times_;
  int num_timed_ = 0;
};

}  // namespace tandem::kernels
