// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_window.h"

#include <nccl_device.h>

#include "kernels/device/cuda/check.h"

namespace tandem::comm {
namespace {

__global__ void window_addresses_kernel(ncclWindow_t window, std::byte** addresses) {
  const int peer = static_cast<int>(threadIdx.x);
  addresses[peer] = static_cast<std::byte*>(ncclGetLsaPointer(window, 0, peer));
}

}  // namespace

void read_window_addresses(ncclWindow_t window, std::byte** addresses, int size,
                           cudaStream_t stream) {
  window_addresses_kernel<<<1, static_cast<unsigned>(size), 0, stream>>>(window, addresses);
  TANDEM_CHECK(cudaGetLastError());
}

}  // namespace tandem::comm
