// SPDX-License-Identifier: Apache-2.0
// What GPUs this process sees, as plain values: for `doctor`, options and rank binding, which
// include no CUDA header. A build without CUDA answers with `built_with_cuda` false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct DeviceInfo {
  int ordinal = 0;
  std::string name, uuid, pci_bus_id;
  int compute_major = 0, compute_minor = 0;
  int num_sms = 0;
  int mem_sync_domains = 1;
  std::int64_t l2_bytes = 0, total_bytes = 0;
  std::int64_t free_bytes = -1;   ///< -1: not asked for.
  std::vector<bool> peer_access;  ///< [devices] direct loads and stores to that GPU; own: true.
  std::vector<bool> nvlink;       ///< [devices] that access goes over NVLink.
  std::string unusable_because;   ///< Empty: this build runs on it. Else one sentence.
};

struct DeviceReport {
  bool built_with_cuda = false;
  int driver_version = 0, runtime_version = 0;  ///< 13000 is 13.0; 0: none.
  std::string problem;  ///< Empty: at least one GPU is visible. Else one sentence with what to do.
  std::vector<DeviceInfo> devices;
};

/// Never throws for a missing driver or GPU. `with_memory` makes a context on each GPU (half a
/// second and some hundred MiB each) to ask how much memory is free.
DeviceReport query_devices(bool with_memory = false);

}  // namespace tandem
