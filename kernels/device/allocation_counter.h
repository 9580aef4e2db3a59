// SPDX-License-Identifier: Apache-2.0
// For the bodies of `allocate` only: counts calls so that tests can prove a step allocates nothing.
#pragma once

namespace tandem {
void count_allocation() noexcept;
}  // namespace tandem
