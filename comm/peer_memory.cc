// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_memory.h"

#include <cstring>
#include <functional>

#include "comm/peer_host.h"
#include "kernels/device/cuda/check.h"
#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

using kernels::kPeerBlocks;
using kernels::kPeerFamilies;

constexpr int kPositionWords = 10;

/// Zeroed and complete before its handle leaves this process.
std::shared_ptr<void> allocate_workspace(std::int64_t size_bytes) {
  std::shared_ptr<void> memory(allocate(Cuda{}, static_cast<std::size_t>(size_bytes)),
                               [](void* pointer) { deallocate(Cuda{}, pointer); });
  TANDEM_CHECK(cudaMemset(memory.get(), 0, static_cast<std::size_t>(size_bytes)));
  TANDEM_CHECK(cudaDeviceSynchronize());
  return memory;
}

struct IpcOffer {
  cudaIpcMemHandle_t handle;
  std::string text() const {
    return std::string(reinterpret_cast<const char*>(&handle), sizeof handle);
  }
};

std::shared_ptr<void> open_ipc(const std::string& text) {
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, text.data(), sizeof handle);
  void* memory = nullptr;
  TANDEM_CHECK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  return {memory, [](void* pointer) { TANDEM_CHECK_NOEXCEPT(cudaIpcCloseMemHandle(pointer)); }};
}

/// `owners` begins with the rank's own memory.
std::optional<SharedMapping> exchange_ipc(ControlPlane& control,
                                          const std::function<std::shared_ptr<void>()>& make,
                                          std::string& why) {
  for (const std::string& host : control.all_gather(host_identity()))
    if (host != host_identity()) {
      why = "the ranks are on several hosts";
      return std::nullopt;
    }
  SharedMapping mapping;
  try {
    std::shared_ptr<void> own;
    IpcOffer offer{};
    control.together([&] {
      own = make();
      TANDEM_CHECK(cudaIpcGetMemHandle(&offer.handle, own.get()));
    });
    const std::vector<std::string> offers = control.all_gather(offer.text());
    mapping.owners.push_back(own);
    control.together([&] {
      for (int r = 0; r < control.size(); ++r) {
        if (r != control.rank()) mapping.owners.push_back(open_ipc(offers[r]));
        mapping.peers.push_back(
            static_cast<std::byte*>(r == control.rank() ? own.get() : mapping.owners.back().get()));
      }
    });
  } catch (const Error& error) {
    why = error.what();
    while (!mapping.owners.empty()) mapping.owners.pop_back();
    control.barrier();
    return std::nullopt;
  }
  return mapping;
}

}  // namespace

std::optional<SharedMapping> map_over_ipc(ControlPlane& control, std::int64_t size_bytes,
                                          std::string& why) {
  return exchange_ipc(
      control, [size_bytes] { return allocate_workspace(size_bytes); }, why);
}

std::optional<SharedMapping> share_over_ipc(ControlPlane& control, void* own, std::string& why) {
  return exchange_ipc(
      control, [own] { return std::shared_ptr<void>(own, [](void*) {}); }, why);
}

PeerMemory::PeerMemory(int rank, SharedMapping mapping)
    : mapping_(std::move(mapping)),
      counters_(kPeerFamilies * kPeerBlocks + kernels::kMaxSumsBlocks + 1),
      one_(1) {
  TANDEM_CHECK(cudaGetDevice(&device_));
  TANDEM_CHECK(cudaMemset(counters_.data(), 0, static_cast<std::size_t>(counters_.size_bytes())));
  TANDEM_CHECK(cudaDeviceSynchronize());
  TANDEM_CHECK(cudaStreamCreateWithFlags(&error_stream_, cudaStreamNonBlocking));
  one_[0] = 1;
  reader_ = std::make_unique<DeviceReader>(device_, kPositionWords);
  view_.rank = rank;
  view_.size = static_cast<int>(mapping_.peers.size());
  for (int r = 0; r < view_.size; ++r) view_.peers[r] = mapping_.peers[static_cast<std::size_t>(r)];
  view_.epochs = counters_.data();
  view_.sums_epochs = counters_.data() + kPeerFamilies * kPeerBlocks;
  view_.error_word = view_.sums_epochs + kernels::kMaxSumsBlocks;
}

PeerMemory::~PeerMemory() {
  TANDEM_CHECK_NOEXCEPT(cudaStreamDestroy(error_stream_));
  while (!mapping_.owners.empty()) mapping_.owners.pop_back();
}

void PeerMemory::raise_error() noexcept {
  TANDEM_CHECK_NOEXCEPT(cudaSetDevice(device_));
  TANDEM_CHECK_NOEXCEPT(cudaMemcpyAsync(view_.error_word, one_.data(), sizeof(std::uint32_t),
                                        cudaMemcpyHostToDevice, error_stream_));
  TANDEM_CHECK_NOEXCEPT(cudaStreamSynchronize(error_stream_));
}

bool PeerMemory::failed() {
  std::uint32_t word = 0;
  TANDEM_CHECK(
      cudaMemcpyAsync(&word, view_.error_word, sizeof word, cudaMemcpyDeviceToHost, error_stream_));
  TANDEM_CHECK(cudaStreamSynchronize(error_stream_));
  return word != 0;
}

/// Block 0 takes part in every call, and what it sends first carries the number of the call.
DevicePosition PeerMemory::position() const {
  const kernels::PeerLayout layout{view_.size};
  const std::byte* next = view_.peers[(view_.rank + 1) % view_.size];
  const auto epoch = [&](kernels::PeerFamily family) {
    return view_.epochs + static_cast<int>(family) * kPeerBlocks;
  };
  const auto flag = [&](std::int64_t set) { return next + layout.flag(set, 0, view_.rank); };
  // Number of the call in the upper half of an 8-byte word; halves take turns.
  constexpr std::int64_t kMark = 4;
  for (const std::int64_t half : {0, 1}) {
    reader_->add(next + layout.push(half, view_.rank, 0) + kMark);
    reader_->add(next + layout.sums(half, view_.rank) + kMark);
  }
  reader_->add(flag(0));
  reader_->add(flag(1));
  for (int family = 0; family < kPeerFamilies; ++family)
    reader_->add(epoch(static_cast<kernels::PeerFamily>(family)));
  reader_->add(view_.sums_epochs);
  const auto words = reader_->read();
  const auto later = [](std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int32_t>(a - b) > 0 ? a : b;
  };
  return {later(words[0], words[2]) + later(words[1], words[3]) + words[4] + words[5],
          words[6] + words[7] + words[8] + words[9]};
}

std::vector<std::unique_ptr<PeerMemory>> local_peers(int size) {
  const std::int64_t size_bytes = kernels::PeerLayout{size}.size_bytes();
  SharedMapping mapping;
  for (int r = 0; r < size; ++r) {
    mapping.owners.push_back(allocate_workspace(size_bytes));
    mapping.peers.push_back(static_cast<std::byte*>(mapping.owners.back().get()));
  }
  std::vector<std::unique_ptr<PeerMemory>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<PeerMemory>(r, mapping));
  return ranks;
}

}  // namespace tandem::comm
