// SPDX-License-Identifier: Apache-2.0
// Reads words of device memory, also of other ranks' that is mapped here, while kernels run and
// whatever they do: the copies go through copy engines, on a stream of their own. For looking into
// a device that does not answer. One thread at a time, but construction and destruction, which are
// the step thread's.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/device/cuda/context.h"
#include "kernels/device/host_buffer.h"

namespace tandem::comm {

class DeviceReader {
 public:
  /// For at most `max_words` 4-byte words at once.
  DeviceReader(int device, std::int64_t max_words);
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;
  ~DeviceReader();

  /// One more word of the next `read`.
  void add(const void* from) { from_.push_back(from); }
  /// The words in the order of `add`, which begins anew. Blocks until they are here: for ever,
  /// where the device takes no copies any more.
  std::vector<std::uint32_t> read();

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  HostBuffer<std::uint32_t, Cuda> words_;
  std::vector<const void*> from_;
};

}  // namespace tandem::comm
