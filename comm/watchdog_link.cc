// SPDX-License-Identifier: Apache-2.0
#include "comm/watchdog_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

using Millis = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr Millis kConnectTimeout{2000};
constexpr Millis kGatherTimeout{20000};

/// What rank 0 tells the others: its host, token, port and addresses.
std::string invitation(const std::string& host, std::uint64_t token, int port,
                       const std::string& interfaces) {
  std::string text = concat(host, " ", token, " ", port);
  for (const NetworkInterface& item :
       network_interfaces(interfaces.empty() ? preferred_interfaces() : interfaces))
    if (!item.loopback) text += " " + item.address;
  return text;
}

/// Rank 0's side: everybody with the right token.
void accept_all(const Socket& listener, Star& star) {
  const auto deadline = Clock::now() + kGatherTimeout;
  std::size_t missing = star.links.size() - 1;
  while (missing > 0 && Clock::now() < deadline) {
    Socket peer = listener.accept(Millis(500));
    Frame frame;
    if (!peer || !peer.receive_all(&frame, sizeof frame, kConnectTimeout)) continue;
    const auto rank = static_cast<std::size_t>(frame.rank);
    if (frame.token != star.token || frame.type != FrameType::kHello || rank == 0 ||
        rank >= star.links.size() || star.links[rank].open())
      continue;
    frame.type = FrameType::kWelcome;
    if (!peer.send_all(&frame, sizeof frame, kConnectTimeout)) continue;
    star.links[rank] = Link(std::move(peer));
    --missing;
  }
}

/// A follower's side: the first address at which rank 0 of this very job answers.
void call_rank_0(int rank, const std::string& host, const std::string& text, Star& star) {
  std::istringstream in(text);
  std::string rank_0_host, address;
  int port = 0;
  in >> rank_0_host >> star.token >> port;
  std::vector<std::string> addresses;
  if (rank_0_host == host) addresses.push_back("127.0.0.1");
  while (in >> address) addresses.push_back(address);
  Frame hello;
  hello.token = star.token;
  hello.type = FrameType::kHello;
  hello.rank = rank;
  for (int attempt = 0; attempt < 2; ++attempt)
    for (const std::string& candidate : addresses) {
      Socket socket = Socket::connect(candidate, port, kConnectTimeout);
      Frame answer;
      if (socket && socket.send_all(&hello, sizeof hello, kConnectTimeout) &&
          socket.receive_all(&answer, sizeof answer, kConnectTimeout) &&
          answer.token == star.token && answer.type == FrameType::kWelcome) {
        star.links[0] = Link(std::move(socket));
        return;
      }
    }
  std::string tried;
  for (const std::string& candidate : addresses) tried += concat(" ", candidate, ":", port);
  throw ConfigError(concat("host ", host, " cannot reach rank 0 on host ", rank_0_host,
                           " over TCP (tried", tried,
                           "); open the ports between the hosts, or name "
                           "the network between them with: --interface NAME"));
}

}  // namespace

void Frame::set_text(const std::string& value) {
  text.fill('\0');
  std::memcpy(text.data(), value.data(), std::min(value.size(), text.size() - 1));
}

void Link::send(const Frame& frame) {
  if (open() && !socket_.send_all(&frame, sizeof frame, Millis(20))) lost_ = true;
}

std::optional<Frame> Link::receive() {
  while (open()) {
    const auto count = ::recv(socket_.descriptor(), reinterpret_cast<char*>(&partial_) + filled_,
                              sizeof partial_ - filled_, 0);
    if (count > 0) {
      filled_ += static_cast<std::size_t>(count);
      if (filled_ < sizeof partial_) continue;
      filled_ = 0;
      partial_.text.back() = '\0';
      return partial_;
    }
    if (count == 0 || (errno != EINTR && errno != EAGAIN)) lost_ = true;
    if (count < 0 && errno == EAGAIN) break;
  }
  return std::nullopt;
}

Star connect_star(const MpiSession& session, ControlPlane& control, const std::string& interfaces) {
  Star star;
  star.hosts = control.all_gather(session.host());
  star.links.resize(session.rank() == 0 ? star.hosts.size() : 1);
  if (session.size() == 1) return star;
  Socket listener;
  std::string text;
  if (session.rank() == 0) {
    std::random_device random;
    star.token = (std::uint64_t{random()} << 32) | random();
    listener = Socket::listen_any();
    text = invitation(session.host(), star.token, listener.port(), interfaces);
  }
  text = control.all_gather(text)[0];
  control.together([&] {
    if (session.rank() == 0)
      accept_all(listener, star);
    else
      call_rank_0(session.rank(), session.host(), text, star);
  });
  return star;
}

}  // namespace tandem::comm
