// SPDX-License-Identifier: Apache-2.0
// Peer addresses of an NCCL window. Device code of NCCL: valid only with the version of NCCL that
// it was compiled with (`nccl_version_matches`).
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>

namespace tandem::comm {

/// addresses[p] (device memory, [size]) = this process's address of rank p's window, for the ranks
/// that can load and store each other's memory. Enqueued on `stream`.
void read_window_addresses(ncclWindow_t window, std::byte** addresses, int size,
                           cudaStream_t stream);

}  // namespace tandem::comm
