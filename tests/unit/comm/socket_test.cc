// SPDX-License-Identifier: Apache-2.0
#include "comm/socket.h"

#include <gtest/gtest.h>

#include <thread>

namespace tandem::comm {
namespace {

using Millis = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// For what happens at once, also on a crowded machine.
constexpr Millis kLong{20000};

TEST(Socket, CarriesBytesBothWays) {
  const Socket listener = Socket::listen_any();
  std::thread peer([port = listener.port()] {
    const Socket socket = Socket::connect("127.0.0.1", port, kLong);
    ASSERT_TRUE(socket);
    int value = 0;
    ASSERT_TRUE(socket.receive_all(&value, sizeof value, kLong));
    value *= 2;
    ASSERT_TRUE(socket.send_all(&value, sizeof value, kLong));
  });
  const Socket socket = listener.accept(kLong);
  ASSERT_TRUE(socket);
  int value = 21;
  EXPECT_TRUE(socket.send_all(&value, sizeof value, kLong));
  EXPECT_TRUE(socket.receive_all(&value, sizeof value, kLong));
  EXPECT_EQ(value, 42);
  peer.join();
  EXPECT_FALSE(socket.receive_all(&value, sizeof value, kLong)) << "the peer hung up";
}

TEST(Socket, DeadlinesHold) {
  const Socket listener = Socket::listen_any();
  const auto start = Clock::now();
  EXPECT_FALSE(listener.accept(Millis(50)));
  const Socket client = Socket::connect("127.0.0.1", listener.port(), kLong);
  const Socket server = listener.accept(kLong);
  char byte = 0;
  EXPECT_FALSE(server.receive_all(&byte, 1, Millis(50)));
  EXPECT_LT(Clock::now() - start, kLong);
}

TEST(Socket, NobodyListens) {
  int port = 0;
  {
    const Socket listener = Socket::listen_any();
    port = listener.port();
  }
  EXPECT_FALSE(Socket::connect("127.0.0.1", port, Millis(200)));
  EXPECT_FALSE(Socket::connect("no address", port, Millis(200)));
}

TEST(NetworkInterfaces, LoopbackComesLastUnlessNamed) {
  const auto found = network_interfaces();
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found.size() == 1 || !found.front().loopback);
  EXPECT_EQ(network_interfaces("lo").front().name, "lo");
}

}  // namespace
}  // namespace tandem::comm
