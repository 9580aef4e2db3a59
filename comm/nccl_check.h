// SPDX-License-Identifier: Apache-2.0
// `TANDEM_CHECK` for NCCL codes.
#pragma once

#include <nccl.h>

#include "kernels/device/cuda/check.h"

namespace tandem::detail {
void check(ncclResult_t code, const CallSite& site);
void check_noexcept(ncclResult_t code, const CallSite& site) noexcept;
}  // namespace tandem::detail
