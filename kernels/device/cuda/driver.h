// SPDX-License-Identifier: Apache-2.0
// Functions of the CUDA driver, found at run time through the runtime. No program of ours links
// libcuda, so a CUDA build starts (with --device cpu) on machines that have no driver.
#pragma once

#include <cuda.h>

namespace tandem {

struct DriverApi {
  decltype(&::cuMemAddressReserve) mem_address_reserve;
  decltype(&::cuMemAddressFree) mem_address_free;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity;
  decltype(&::cuMemCreate) mem_create;
  decltype(&::cuMemRelease) mem_release;
  decltype(&::cuMemMap) mem_map;
  decltype(&::cuMemUnmap) mem_unmap;
  decltype(&::cuMemSetAccess) mem_set_access;
  decltype(&::cuGraphKernelNodeGetParams) graph_kernel_node_get_params;
  decltype(&::cuGraphKernelNodeGetAttribute) graph_kernel_node_get_attribute;
  decltype(&::cuFuncGetName) func_get_name;
  decltype(&::cuKernelGetName) kernel_get_name;
  decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled;
  decltype(&::cuStreamWaitValue32) stream_wait_value32;
  decltype(&::cuStreamWriteValue32) stream_write_value32;
};

/// Loaded on first use; CudaError when there is no driver or it is too old. Thread-safe.
const DriverApi& driver();

}  // namespace tandem
