// SPDX-License-Identifier: Apache-2.0
// The watchdog's wire: frames of one fixed size over TCP, and the star of connections around rank
// 0. Used by one thread at a time.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "comm/control_plane.h"
#include "comm/mpi_session.h"
#include "comm/progress.h"
#include "comm/socket.h"
#include "comm/verdict.h"

namespace tandem::comm {

enum class FrameType : std::int32_t { kHello, kWelcome, kBeat, kLeave, kFail };

/// All ranks run the same program, so a plain struct is the format.
struct Frame {
  std::uint64_t token = 0;  ///< The job's: strangers that reach the port are turned away.
  FrameType type = FrameType::kBeat;
  std::int32_t rank = 0;
  std::int32_t exit_code = 0;
  StageKind kind = StageKind::kLoad;
  double stage_age_s = 0;
  std::int32_t has_position = 0, unused = 0;
  DevicePosition position;
  std::array<char, 464> text{};  ///< Stage or sentence, cut to fit, zero-terminated.

  void set_text(const std::string& value);
};
static_assert(sizeof(Frame) == 512);

/// One connection; keeps the part of a frame that has arrived.
class Link {
 public:
  Link() = default;
  explicit Link(Socket socket) : socket_(std::move(socket)) {}

  bool open() const { return static_cast<bool>(socket_) && !lost_; }
  bool lost() const { return lost_; }
  int descriptor() const { return socket_.descriptor(); }
  void close() { socket_.close(); }

  /// Heartbeats are small and rare, so a full send buffer means that the peer is gone.
  void send(const Frame& frame);
  /// The next whole frame that is here already. Notices the end of the connection (`lost`).
  std::optional<Frame> receive();

 private:
  Socket socket_;
  bool lost_ = false;
  std::size_t filled_ = 0;
  Frame partial_;
};

struct Star {
  std::uint64_t token = 0;
  std::vector<std::string> hosts;  ///< Of every rank.
  std::vector<Link> links;         ///< Rank 0: one per rank, its own unused. Others: only [0].
};

/// Collective. ConfigError on all ranks when one cannot reach rank 0.
Star connect_star(const MpiSession& session, ControlPlane& control, const std::string& interfaces);

}  // namespace tandem::comm
