// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/annotate.h"

#include <nvtx3/nvToolsExt.h>

namespace tandem {

void annotate_begin(const char* name) noexcept { nvtxRangePushA(name); }
void annotate_end() noexcept { nvtxRangePop(); }

}  // namespace tandem
