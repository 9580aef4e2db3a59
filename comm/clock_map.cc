// SPDX-License-Identifier: Apache-2.0
#include "comm/clock_map.h"

#include <algorithm>
#include <chrono>

#include "comm/mpi_check.h"
#include "comm/mpi_wait.h"

namespace tandem::comm {
namespace {

constexpr int kRounds = 40;
constexpr int kTag = 7;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void send_time(MPI_Comm comm, int to, std::int64_t time) {
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Isend(&time, 1, MPI_INT64_T, to, kTag, comm, &request));
  wait_for(request, kDataWait);
}

std::int64_t receive_time(MPI_Comm comm, int from) {
  std::int64_t time = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Irecv(&time, 1, MPI_INT64_T, from, kTag, comm, &request));
  wait_for(request, kDataWait);
  return time;
}

}  // namespace

ClockOffset measure_clock_offset(ControlPlane& control) {
  ClockOffset best;
  best.local_ns = now_ns();
  if (control.rank() == 0) {
    // Answers every ping with its own time; one rank after the other.
    for (int peer = 1; peer < control.size(); ++peer)
      for (int round = 0; round < kRounds; ++round) {
        receive_time(control.handle(), peer);
        send_time(control.handle(), peer, now_ns());
      }
    return best;
  }
  std::int64_t shortest = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t sent = now_ns();
    send_time(control.handle(), 0, sent);
    const std::int64_t rank0 = receive_time(control.handle(), 0);
    const std::int64_t received = now_ns();
    if (received - sent >= shortest) continue;
    shortest = received - sent;
    best = {received, rank0 - (sent + shortest / 2), (shortest + 1) / 2};
  }
  return best;
}

std::int64_t to_rank0_clock(std::int64_t local_ns, const ClockOffset& first,
                            const ClockOffset& last) {
  const std::int64_t span = last.local_ns - first.local_ns;
  if (span <= 0) return local_ns + first.offset_ns;
  const double share = std::clamp(
      static_cast<double>(local_ns - first.local_ns) / static_cast<double>(span), 0.0, 1.0);
  const double drift = share * static_cast<double>(last.offset_ns - first.offset_ns);
  return local_ns + first.offset_ns + static_cast<std::int64_t>(drift);
}

}  // namespace tandem::comm
