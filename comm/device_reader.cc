// SPDX-License-Identifier: Apache-2.0
#include "comm/device_reader.h"

#include "kernels/device/cuda/check.h"
#include "kernels/device/error.h"

namespace tandem::comm {

DeviceReader::DeviceReader(int device, std::int64_t max_words)
    : device_(device), words_(max_words) {
  TANDEM_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

DeviceReader::~DeviceReader() { TANDEM_CHECK_NOEXCEPT(cudaStreamDestroy(stream_)); }

std::vector<std::uint32_t> DeviceReader::read() {
  const std::vector<const void*> from = std::move(from_);
  from_.clear();
  TANDEM_ASSERT(static_cast<std::int64_t>(from.size()) <= words_.size(), from.size(), " words");
  TANDEM_CHECK(cudaSetDevice(device_));
  for (std::size_t i = 0; i < from.size(); ++i)
    TANDEM_CHECK(cudaMemcpyAsync(words_.data() + i, from[i], 4, cudaMemcpyDeviceToHost, stream_));
  TANDEM_CHECK(cudaStreamSynchronize(stream_));
  return {words_.data(), words_.data() + from.size()};
}

}  // namespace tandem::comm
