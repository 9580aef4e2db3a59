// SPDX-License-Identifier: Apache-2.0
// Which kernel multiplies few rows on this GPU: Tandem's streaming kernels or cuBLASLt. Decided per
// shape (and bucket of rows) by timing both on the caller's buffers, once; what was not timed
// follows a rule. Belongs to one `CublasLt`; used from its step thread.
#pragma once

#include <map>

#include "kernels/cuda/matmul_cache.h"
#include "kernels/device/cuda/context.h"

namespace tandem::kernels {

class DecodeChoice {
 public:
  /// True: the streaming kernel. The first call of a shape outside of a capture, while `tuning`,
  /// writes y and waits for both candidates.
  bool streaming(Context<Cuda>& ctx, bool tuning, const MatmulShape& shape, const void* x,
                 const void* w, void* y);

 private:
  std::map<MatmulShape, bool> chosen_;
};

}  // namespace tandem::kernels
