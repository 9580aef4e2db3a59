// SPDX-License-Identifier: Apache-2.0
// For tests that need a GPU: without a usable one they are skipped, with the reason.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/device/cuda/context.h"
#include "kernels/device/device_info.h"

namespace tandem::testing {

/// Empty, or why there is no GPU to test on.
inline std::string gpu_missing() {
  const DeviceReport report = query_devices();
  return report.problem.empty() ? report.devices[0].unusable_because : report.problem;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = gpu_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

template <typename T>
Buffer<T, Cuda> upload(Context<Cuda>& ctx, const std::vector<T>& host) {
  Buffer<T, Cuda> device(static_cast<std::int64_t>(host.size()));
  copy_to_device(ctx, device.data(), host.data(), device.size_bytes());
  ctx.compute().synchronize();
  return device;
}

template <typename T>
std::vector<T> download(Context<Cuda>& ctx, const T* device, std::int64_t size) {
  std::vector<T> host(static_cast<std::size_t>(size));
  copy_to_host(ctx, host.data(), device, size * static_cast<std::int64_t>(sizeof(T)));
  ctx.compute().synchronize();
  return host;
}

/// Device memory full of NaN bit patterns: what a kernel forgets to write is seen.
template <typename T>
Buffer<T, Cuda> poisoned(Context<Cuda>& ctx, std::int64_t size) {
  std::vector<T> host(static_cast<std::size_t>(size));
  std::memset(static_cast<void*>(host.data()), 0xff, host.size() * sizeof(T));
  return upload(ctx, host);
}

}  // namespace tandem::testing
