// SPDX-License-Identifier: Apache-2.0
// Named ranges of the calling thread for outside profilers (NVTX, seen by Nsight Systems); nothing
// in a build without CUDA. Ranges nest. Any thread.
#pragma once

namespace tandem {

void annotate_begin(const char* name) noexcept;
void annotate_end() noexcept;

}  // namespace tandem
