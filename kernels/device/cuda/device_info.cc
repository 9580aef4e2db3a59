// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device_info.h"

#include <cstdio>

#include "kernels/device/cuda/check.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

constexpr int kComputeMajor = 9, kComputeMinor = 0;  // CMAKE_CUDA_ARCHITECTURES 90a

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

DeviceInfo describe(int ordinal, int count) {
  cudaDeviceProp prop{};
  TANDEM_CHECK(cudaGetDeviceProperties(&prop, ordinal));
  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = prop.name;
  info.uuid = uuid_text(prop.uuid);
  char bus[32] = {};
  TANDEM_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal));
  info.pci_bus_id = bus;
  info.compute_major = prop.major;
  info.compute_minor = prop.minor;
  info.num_sms = prop.multiProcessorCount;
  info.l2_bytes = prop.l2CacheSize;
  info.total_bytes = static_cast<std::int64_t>(prop.totalGlobalMem);
  TANDEM_CHECK(
      cudaDeviceGetAttribute(&info.mem_sync_domains, cudaDevAttrMemSyncDomainCount, ordinal));
  for (int peer = 0; peer < count; ++peer) {
    int can = peer == ordinal;
    if (!can) TANDEM_CHECK(cudaDeviceCanAccessPeer(&can, ordinal, peer));
    info.peer_access.push_back(can != 0);
    // Atomics on a peer's memory are native over NVLink and not over PCIe.
    int native = 0;
    if (peer != ordinal && can)
      TANDEM_CHECK(
          cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, ordinal, peer));
    info.nvlink.push_back(native != 0);
  }
  if (prop.major != kComputeMajor || prop.minor != kComputeMinor)
    info.unusable_because =
        concat("GPU ", ordinal, " (", info.name, ") has compute capability ", prop.major, ".",
               prop.minor, ", this build has code for ", kComputeMajor, ".", kComputeMinor,
               " (H100, H200) only: use --device cpu");
  return info;
}

void add_free_memory(DeviceInfo& info) {
  int before = 0;
  TANDEM_CHECK(cudaGetDevice(&before));
  TANDEM_CHECK(cudaSetDevice(info.ordinal));
  std::size_t free_bytes = 0, total_bytes = 0;
  TANDEM_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  info.free_bytes = static_cast<std::int64_t>(free_bytes);
  TANDEM_CHECK(cudaSetDevice(before));
}

std::string version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

DeviceReport query_devices(bool with_memory) {
  DeviceReport report;
  report.built_with_cuda = true;
  cudaDriverGetVersion(&report.driver_version);
  cudaRuntimeGetVersion(&report.runtime_version);
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (report.driver_version == 0) {
    report.problem = "no NVIDIA driver is loaded on this machine: use --device cpu, or install one";
  } else if (code == cudaErrorInsufficientDriver ||
             report.driver_version / 1000 < report.runtime_version / 1000) {
    report.problem = concat("the NVIDIA driver supports CUDA ", version_text(report.driver_version),
                            ", this build needs ", version_text(report.runtime_version),
                            ": update the driver, or use --device cpu");
  } else if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
    report.problem =
        "no GPU is visible to this process: use --device cpu, or look at CUDA_VISIBLE_DEVICES and "
        "nvidia-smi";
  } else if (code != cudaSuccess) {
    report.problem = concat("the GPUs cannot be counted (", cudaGetErrorString(code),
                            "): look at nvidia-smi, or use --device cpu");
  }
  cudaGetLastError();
  if (!report.problem.empty()) return report;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    report.devices.push_back(describe(ordinal, count));
    if (with_memory) add_free_memory(report.devices.back());
  }
  return report;
}

}  // namespace tandem
