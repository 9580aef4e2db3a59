// SPDX-License-Identifier: Apache-2.0
// TCP between ranks, without MPI: used by the heartbeat thread and by `doctor`. Owns descriptors;
// every call has a deadline. Not thread-safe per socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tandem::comm {

/// One address of this host.
struct NetworkInterface {
  std::string name;     ///< eth0
  std::string address;  ///< 10.0.0.1
  bool loopback = false;
  bool virtual_bridge = false;  ///< docker0, virbr0 and the like: never leads to another host.
  std::int64_t speed_mbit = 0;  ///< 0: the kernel does not say.
};

/// Interfaces that are up and have an IPv4 address, the likeliest way to other hosts first: those
/// named in `preferred` ("eth0,ib0"; empty: none), then by speed, bridges and loopback last.
std::vector<NetworkInterface> network_interfaces(const std::string& preferred = "");

/// Whether the comma-separated `list` names this interface; entries are prefixes, as for NCCL.
bool names_interface(const std::string& list, const std::string& name);

/// What the user told Open MPI or NCCL about interfaces, in the order btl_tcp_if_include,
/// NCCL_SOCKET_IFNAME; empty when nothing was.
std::string preferred_interfaces();

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  /// Listens on a free port of all interfaces. Throws Error.
  static Socket listen_any();
  /// An empty socket when nobody answered within `timeout`.
  static Socket connect(const std::string& address, int port, std::chrono::milliseconds timeout);

  /// The next connection, or an empty socket after `timeout`.
  Socket accept(std::chrono::milliseconds timeout) const;
  int port() const;

  /// Sends or receives all of it within `timeout`; false when the peer is gone or too slow.
  bool send_all(const void* data, std::size_t size, std::chrono::milliseconds timeout) const;
  bool receive_all(void* data, std::size_t size, std::chrono::milliseconds timeout) const;

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

}  // namespace tandem::comm
