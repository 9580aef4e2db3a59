// SPDX-License-Identifier: Apache-2.0
// `TANDEM_CHECK` for cuBLAS codes.
#pragma once

#include <cublasLt.h>

#include "kernels/device/cuda/check.h"

namespace tandem::detail {
void check(cublasStatus_t code, const CallSite& site);
void check_noexcept(cublasStatus_t code, const CallSite& site) noexcept;
}  // namespace tandem::detail
