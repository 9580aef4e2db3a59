// SPDX-License-Identifier: Apache-2.0
// A matmul as cuBLASLt wants it described, and the algorithms that the library offers for it.
// Used from the step thread; holds no device memory.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/cublas_check.h"
#include "kernels/cuda/matmul_cache.h"

namespace tandem::kernels {

struct CublasLtPlan {
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{64} << 20;

  template <auto Destroy>
  struct Deleter {
    template <typename T>
    void operator()(T* object) const {
      TANDEM_CHECK_NOEXCEPT(Destroy(object));
    }
  };
  template <typename T, auto Destroy>
  using Owned = std::unique_ptr<T, Deleter<Destroy>>;
  using Layout = Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;

  /// cuBLAS is column-major: y^T `[n, m]` = W (transposed from `[k, n]`) x^T `[k, m]`.
  explicit CublasLtPlan(const MatmulShape& shape);
  /// What the library thinks best comes first; never empty.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(cublasLtHandle_t handle) const;
  /// Whether it can do this shape within the workspace.
  bool can_use(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& chosen) const;

  MatmulShape shape;
  Owned<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy> descriptor;
  Layout w, x, y;
  cublasLtMatmulAlgo_t algorithm{};
};

}  // namespace tandem::kernels
