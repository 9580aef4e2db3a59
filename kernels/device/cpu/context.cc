// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cpu/context.h"

#include <omp.h>

#include <cstring>

namespace tandem {
namespace {

/// Nothing is copied to or from null.
void copy(void* to, const void* from, std::int64_t size_bytes) {
  if (size_bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(size_bytes));
}

}  // namespace

Context<Cpu>::Context(int num_threads) : threads_(num_threads) { omp_set_num_threads(num_threads); }

void copy_to_device(Context<Cpu>&, void* device, const void* host, std::int64_t size_bytes) {
  copy(device, host, size_bytes);
}
void copy_to_host(Context<Cpu>&, void* host, const void* device, std::int64_t size_bytes) {
  copy(host, device, size_bytes);
}
void copy_to_device(Stream<Cpu>&, void* device, const void* host, std::int64_t size_bytes) {
  copy(device, host, size_bytes);
}
void copy_to_host(Stream<Cpu>&, void* host, const void* device, std::int64_t size_bytes) {
  copy(host, device, size_bytes);
}
void copy_on_device(Context<Cpu>&, void* to, const void* from, std::int64_t size_bytes) {
  copy(to, from, size_bytes);
}
void fill_zero(Context<Cpu>&, void* device, std::int64_t size_bytes) {
  if (size_bytes > 0) std::memset(device, 0, static_cast<std::size_t>(size_bytes));
}

}  // namespace tandem
