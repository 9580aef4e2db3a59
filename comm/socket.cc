// SPDX-License-Identifier: Apache-2.0
#include "comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

/// True when the descriptor is ready for `events` before `deadline`.
bool ready(int descriptor, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<Millis>(deadline - Clock::now());
    pollfd entry{descriptor, events, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

void set_options(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Socket::~Socket() { close(); }

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Socket Socket::listen_any() {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (!socket ||
      ::bind(socket.descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.descriptor_, 1024) != 0)
    throw Error(concat("cannot listen on a TCP port: ", std::strerror(errno)));
  return socket;
}

Socket Socket::connect(const std::string& address, int port, Millis timeout) {
  const auto deadline = Clock::now() + timeout;
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<std::uint16_t>(port));
  if (!socket || ::inet_pton(AF_INET, address.c_str(), &target.sin_addr) != 1) return {};
  if (::connect(socket.descriptor_, reinterpret_cast<sockaddr*>(&target), sizeof target) != 0) {
    if (errno != EINPROGRESS || !ready(socket.descriptor_, POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return {};
  }
  set_options(socket.descriptor_);
  return socket;
}

Socket Socket::accept(Millis timeout) const {
  if (!ready(descriptor_, POLLIN, Clock::now() + timeout)) return {};
  Socket peer(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (peer) set_options(peer.descriptor_);
  return peer;
}

int Socket::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

bool Socket::send_all(const void* data, std::size_t size, Millis timeout) const {
  const auto deadline = Clock::now() + timeout;
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const auto sent = ::send(descriptor_, next, size, MSG_NOSIGNAL);
    if (sent > 0) {
      next += sent;
      size -= static_cast<std::size_t>(sent);
    } else if (errno != EINTR && (errno != EAGAIN || !ready(descriptor_, POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

bool Socket::receive_all(void* data, std::size_t size, Millis timeout) const {
  const auto deadline = Clock::now() + timeout;
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const auto received = ::recv(descriptor_, next, size, 0);
    if (received > 0) {
      next += received;
      size -= static_cast<std::size_t>(received);
    } else if (received == 0 ||
               (errno != EINTR && (errno != EAGAIN || !ready(descriptor_, POLLIN, deadline)))) {
      return false;
    }
  }
  return true;
}

}  // namespace tandem::comm
