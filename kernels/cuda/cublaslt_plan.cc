// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cublaslt_plan.h"

#include "kernels/device/error.h"

namespace tandem::kernels {
namespace {

constexpr int kCandidates = 16;

cudaDataType_t cuda_type(DType type) {
  return type == DType::kF32 ? CUDA_R_32F : type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

CublasLtPlan::Layout make_layout(DType type, std::int64_t rows, std::int64_t cols,
                                 std::int64_t leading) {
  cublasLtMatrixLayout_t layout = nullptr;
  TANDEM_CHECK(cublasLtMatrixLayoutCreate(&layout, cuda_type(type),
                                          static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(cols), leading));
  return CublasLtPlan::Layout(layout);
}

cublasLtMatmulDesc_t make_descriptor() {
  cublasLtMatmulDesc_t made = nullptr;
  // COMPUTE_32F also for float inputs: full float products, no TF32.
  TANDEM_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  return made;
}

using Preference =
    CublasLtPlan::Owned<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

Preference make_preference(std::int32_t alignment_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  TANDEM_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const auto set = [made](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    TANDEM_CHECK(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(CublasLtPlan::kWorkspaceBytes));
  // Partial sums of a split K stay float: one rounding to the output type, as `linear.h` promises.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                 CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = static_cast<std::uint32_t>(alignment_bytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  return preference;
}

}  // namespace

CublasLtPlan::CublasLtPlan(const MatmulShape& of)
    : shape(of),
      descriptor(make_descriptor()),
      w(make_layout(of.in, of.k, of.n, of.k)),
      x(make_layout(of.in, of.k, of.m, of.x_stride)),
      y(make_layout(of.out, of.n, of.m, of.y_stride)) {
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TANDEM_CHECK(cublasLtMatmulDescSetAttribute(descriptor.get(), CUBLASLT_MATMUL_DESC_TRANSA,
                                              &transposed, sizeof transposed));
  if (const std::int32_t target = of.sm_target; target > 0)
    TANDEM_CHECK(cublasLtMatmulDescSetAttribute(
        descriptor.get(), CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &target, sizeof target));
}

std::vector<cublasLtMatmulHeuristicResult_t> CublasLtPlan::candidates(
    cublasLtHandle_t handle) const {
  const Preference preference = make_preference(shape.alignment_bytes);
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, descriptor.get(), w.get(), x.get(), y.get(), y.get(),
                                     preference.get(), kCandidates, found.data(), &count);
  TANDEM_ASSERT(status == CUBLAS_STATUS_SUCCESS && count > 0, "cuBLASLt has no algorithm for m ",
                shape.m, ", n ", shape.n, ", k ", shape.k, " (", cublasLtGetStatusString(status),
                ")");
  found.resize(static_cast<std::size_t>(count));
  return found;
}

bool CublasLtPlan::can_use(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& chosen) const {
  cublasLtMatmulHeuristicResult_t checked{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, descriptor.get(), w.get(), x.get(),
                                                        y.get(), y.get(), &chosen, &checked);
  return status == CUBLAS_STATUS_SUCCESS &&
         checked.workspaceSize <= static_cast<std::size_t>(kWorkspaceBytes);
}

}  // namespace tandem::kernels
