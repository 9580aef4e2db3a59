// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_window.h"

#include <nccl_device.h>

#include "comm/nccl_check.h"
#include "comm/peer_memory.h"
#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

struct Window {
  ncclComm_t comm;
  void* memory = nullptr;
  ncclWindow_t handle = nullptr;

  explicit Window(ncclComm_t of) : comm(of) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (handle != nullptr) TANDEM_CHECK_NOEXCEPT(ncclCommWindowDeregister(comm, handle));
    if (memory != nullptr) TANDEM_CHECK_NOEXCEPT(ncclMemFree(memory));
  }
};

std::vector<std::byte*> read_addresses(ncclWindow_t window, int size) {
  const Buffer<std::byte*, Cuda> addresses(size);
  std::vector<std::byte*> peers(static_cast<std::size_t>(size));
  read_window_addresses(window, addresses.data(), size, cudaStreamPerThread);
  TANDEM_CHECK(cudaMemcpyAsync(peers.data(), addresses.data(),
                               static_cast<std::size_t>(addresses.size_bytes()),
                               cudaMemcpyDeviceToHost, cudaStreamPerThread));
  TANDEM_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  return peers;
}

}  // namespace

std::optional<SharedMapping> map_over_window(ControlPlane& control, const NcclComm& comm,
                                             std::int64_t size_bytes, std::string& why) {
  if (!nccl_version_matches()) {
    why = "NCCL is not the version this build was compiled with";
    return std::nullopt;
  }
  SharedMapping mapping;
  try {
    const auto window = std::make_shared<Window>(comm.handle());
    control.together([&] {
      TANDEM_CHECK(ncclMemAlloc(&window->memory, static_cast<std::size_t>(size_bytes)));
      TANDEM_CHECK(cudaMemset(window->memory, 0, static_cast<std::size_t>(size_bytes)));
      TANDEM_CHECK(cudaDeviceSynchronize());
    });
    control.together([&] {
      TANDEM_CHECK(ncclCommWindowRegister(comm.handle(), window->memory,
                                          static_cast<std::size_t>(size_bytes), &window->handle,
                                          NCCL_WIN_DEFAULT));
      const int reachable = window->handle == nullptr ? 0 : ncclTeamLsa(comm.handle()).nRanks;
      if (reachable != control.size())
        throw Error(concat("only ", reachable, " of ", control.size(),
                           " ranks can load and store each other's memory"));
      mapping.peers = read_addresses(window->handle, control.size());
    });
    mapping.owners.push_back(window);
  } catch (const Error& error) {
    why = error.what();
    return std::nullopt;
  }
  return mapping;
}

}  // namespace tandem::comm
