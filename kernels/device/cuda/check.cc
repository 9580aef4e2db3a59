// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/check.h"

#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::detail {
namespace {

const char* hint(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return "; lower --gpu-memory-utilization, --max-num-seqs or --max-num-batched-tokens";
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return "; run `tandem doctor`, or use --device cpu";
    case cudaErrorNoKernelImageForDevice:
      return "; this build runs on sm_90 GPUs (H100, H200) only: use --device cpu";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorECCUncorrectable:
      return " (the fault may lie in a kernel enqueued earlier; CUDA_LAUNCH_BLOCKING=1 finds it)";
    default:
      return "";
  }
}

std::string describe(cudaError_t code, const CallSite& site) {
  return concat("CUDA error ", static_cast<int>(code), " (", cudaGetErrorName(code), ": ",
                cudaGetErrorString(code), ") from ", site.call, " at ", site.file, ":", site.line,
                hint(code));
}

}  // namespace

void check(cudaError_t code, const CallSite& site) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // A returned error that is not sticky must not be found by the next call.
  throw CudaError(describe(code, site), static_cast<int>(code));
}

// The numbers of driver and runtime errors agree since CUDA 10.1; the runtime's texts are used so
// that the programs need not link libcuda, which a machine without a GPU does not have.
void check(CUresult code, const CallSite& site) { check(static_cast<cudaError_t>(code), site); }

void check_noexcept(cudaError_t code, const CallSite& site) noexcept {
  if (code == cudaSuccess || code == cudaErrorCudartUnloading) return;
  cudaGetLastError();
  try {
    log_warn(describe(code, site));
  } catch (...) {  // Out of memory while describing: nothing better to do in a destructor.
  }
}

void check_noexcept(CUresult code, const CallSite& site) noexcept {
  check_noexcept(static_cast<cudaError_t>(code), site);
}

}  // namespace tandem::detail
