// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/driver.h"

#include "kernels/device/cuda/check.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

template <typename Function>
void find(const char* name, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
  TANDEM_CHECK(
      cudaGetDriverEntryPointByVersion(name, &address, CUDA_VERSION, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || address == nullptr)
    throw CudaError(concat("the CUDA driver has no ", name, "; install driver 580 or newer"),
                    static_cast<int>(cudaErrorSymbolNotFound));
  function = reinterpret_cast<Function>(address);
}

DriverApi load() {
  DriverApi api{};
  find("cuMemAddressReserve", api.mem_address_reserve);
  find("cuMemAddressFree", api.mem_address_free);
  find("cuMemGetAllocationGranularity", api.mem_get_allocation_granularity);
  find("cuMemCreate", api.mem_create);
  find("cuMemRelease", api.mem_release);
  find("cuMemMap", api.mem_map);
  find("cuMemUnmap", api.mem_unmap);
  find("cuMemSetAccess", api.mem_set_access);
  find("cuGraphKernelNodeGetParams", api.graph_kernel_node_get_params);
  find("cuGraphKernelNodeGetAttribute", api.graph_kernel_node_get_attribute);
  find("cuFuncGetName", api.func_get_name);
  find("cuKernelGetName", api.kernel_get_name);
  find("cuTensorMapEncodeTiled", api.tensor_map_encode_tiled);
  find("cuStreamWaitValue32", api.stream_wait_value32);
  find("cuStreamWriteValue32", api.stream_write_value32);
  return api;
}

}  // namespace

const DriverApi& driver() {
  static const DriverApi api = load();
  return api;
}

}  // namespace tandem
