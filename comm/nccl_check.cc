// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_check.h"

#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::detail {
namespace {

std::string describe(ncclResult_t code, const CallSite& site) {
  const char* last = ncclGetLastError(nullptr);
  return concat("NCCL error ", static_cast<int>(code), " (", ncclGetErrorString(code),
                last != nullptr && *last != '\0' ? concat("; ", last) : "", ") from ", site.call,
                " at ", site.file, ":", site.line, "; NCCL_DEBUG=INFO says more");
}

}  // namespace

void check(ncclResult_t code, const CallSite& site) {
  if (code != ncclSuccess) throw NcclError(describe(code, site), static_cast<int>(code));
}

void check_noexcept(ncclResult_t code, const CallSite& site) noexcept {
  if (code == ncclSuccess) return;
  try {
    log_warn(describe(code, site));
  } catch (...) {  // Out of memory while describing: nothing better to do in a destructor.
  }
}

}  // namespace tandem::detail
