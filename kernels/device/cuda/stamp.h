// SPDX-License-Identifier: Apache-2.0
// Writes the GPU's clock (ns, %globaltimer) to `at` when all work before it is done. Asynchronous,
// on the compute stream, may be captured; keeps the PDL rule of `launch.cuh`.
#pragma once

#include <cstdint>

#include "kernels/device/cuda/context.h"

namespace tandem {

void enqueue_stamp(Context<Cuda>& ctx, std::uint64_t* at);

}  // namespace tandem
