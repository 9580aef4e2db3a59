// SPDX-License-Identifier: Apache-2.0
// Kernels that go wrong, for failure drills.
#pragma once

#include "kernels/device/buffer.h"
#include "kernels/device/cuda/context.h"

namespace tandem::testing {

/// Fills all SMs until `never[0]` is not 0, which nobody does: no error word ends it.
void launch_wedge(Context<Cuda>& ctx, Span<std::int32_t, Cuda> never);
/// Stores to an address that is not mapped.
void launch_fault(Context<Cuda>& ctx);

}  // namespace tandem::testing
