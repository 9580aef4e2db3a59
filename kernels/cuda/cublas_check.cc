// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cublas_check.h"

#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::detail {
namespace {

std::string describe(cublasStatus_t code, const CallSite& site) {
  return concat("cuBLASLt error ", static_cast<int>(code), " (", cublasLtGetStatusString(code),
                ") from ", site.call, " at ", site.file, ":", site.line);
}

}  // namespace

void check(cublasStatus_t code, const CallSite& site) {
  if (code != CUBLAS_STATUS_SUCCESS)
    throw CublasError(describe(code, site), static_cast<int>(code));
}

void check_noexcept(cublasStatus_t code, const CallSite& site) noexcept {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  try {
    log_warn(describe(code, site));
  } catch (...) {  // Out of memory while describing: nothing better to do in a destructor.
  }
}

}  // namespace tandem::detail
