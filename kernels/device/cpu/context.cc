// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cpu/context.h"

#include <omp.h>

#include <cstring>

namespace tandem {

Context<Cpu>::Context(int num_threads) : threads_(num_threads) { omp_set_num_threads(num_threads); }

void copy_to_device(Context<Cpu>&, void* device, const void* host, std::int64_t size_bytes) {
  std::memcpy(device, host, static_cast<std::size_t>(size_bytes));
}
void copy_to_host(Context<Cpu>&, void* host, const void* device, std::int64_t size_bytes) {
  std::memcpy(host, device, static_cast<std::size_t>(size_bytes));
}
void copy_to_device(Stream<Cpu>&, void* device, const void* host, std::int64_t size_bytes) {
  std::memcpy(device, host, static_cast<std::size_t>(size_bytes));
}
void copy_to_host(Stream<Cpu>&, void* host, const void* device, std::int64_t size_bytes) {
  std::memcpy(host, device, static_cast<std::size_t>(size_bytes));
}
void copy_on_device(Context<Cpu>&, void* to, const void* from, std::int64_t size_bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(size_bytes));
}
void fill_zero(Context<Cpu>&, void* device, std::int64_t size_bytes) {
  std::memset(device, 0, static_cast<std::size_t>(size_bytes));
}

}  // namespace tandem
