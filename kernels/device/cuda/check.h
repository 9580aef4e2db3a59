// SPDX-License-Identifier: Apache-2.0
// `TANDEM_CHECK(call)` for codes of the CUDA runtime and driver; overloads for cuBLAS and NCCL are
// in `kernels/cuda/cublas_check.h` and `comm/nccl_check.h`. Throws a typed error that says which
// call failed, where, and what to do. `TANDEM_CHECK_NOEXCEPT` is for destructors: it logs.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace tandem::detail {

struct CallSite {
  const char* call;
  const char* file;
  int line;
};

void check(cudaError_t code, const CallSite& site);
void check(CUresult code, const CallSite& site);

/// Logs a failure instead of throwing. Silent when the driver is already gone at process exit.
void check_noexcept(cudaError_t code, const CallSite& site) noexcept;
void check_noexcept(CUresult code, const CallSite& site) noexcept;

}  // namespace tandem::detail

#define TANDEM_CHECK(expression) \
  ::tandem::detail::check((expression), ::tandem::detail::CallSite{#expression, __FILE__, __LINE__})
#define TANDEM_CHECK_NOEXCEPT(expression)        \
  ::tandem::detail::check_noexcept((expression), \
                                   ::tandem::detail::CallSite{#expression, __FILE__, __LINE__})
