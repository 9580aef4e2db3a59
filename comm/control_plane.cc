// SPDX-License-Identifier: Apache-2.0
#include "comm/control_plane.h"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>

#include "comm/mpi_check.h"
#include "comm/mpi_wait.h"
#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

/// A plan of a decode step fits, so that it travels in one message.
constexpr std::size_t kInlineBytes = 2040;

struct BroadcastHead {
  std::int64_t size_bytes = 0;
  std::array<std::byte, kInlineBytes> data;
};

int checked_count(std::int64_t size_bytes) {
  TANDEM_ASSERT(size_bytes >= 0 && size_bytes <= INT32_MAX, size_bytes,
                " bytes in one control message");
  return static_cast<int>(size_bytes);
}

}  // namespace

ControlPlane::ControlPlane(const MpiSession& session)
    : rank_(session.rank()), size_(session.size()) {
  TANDEM_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
}

ControlPlane::~ControlPlane() { MPI_Comm_free(&comm_); }

void ControlPlane::wait(MPI_Request& request) { wait_for(request, kControlWait); }

void ControlPlane::broadcast(std::vector<std::byte>& bytes) {
  if (size_ == 1) return;
  const StageScope stage(progress_, rank_ == 0 ? StageKind::kCollective : StageKind::kIdle,
                         "broadcast of a plan");
  BroadcastHead head;
  if (rank_ == 0) {
    head.size_bytes = static_cast<std::int64_t>(bytes.size());
    std::copy_n(bytes.begin(), std::min(bytes.size(), kInlineBytes), head.data.begin());
  }
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Ibcast(&head, sizeof head, MPI_BYTE, 0, comm_, &request));
  wait(request);
  const auto size = static_cast<std::size_t>(head.size_bytes);
  if (rank_ != 0) {
    bytes.resize(size);
    std::copy_n(head.data.begin(), std::min(size, kInlineBytes), bytes.begin());
  }
  if (size <= kInlineBytes) return;
  TANDEM_CHECK_MPI(MPI_Ibcast(bytes.data() + kInlineBytes,
                              checked_count(head.size_bytes - static_cast<int>(kInlineBytes)),
                              MPI_BYTE, 0, comm_, &request));
  wait(request);
}

std::vector<std::string> ControlPlane::all_gather(const std::string& mine) {
  if (size_ == 1) return {mine};
  const StageScope stage(progress_, StageKind::kCollective, "agreement of all ranks");
  const int my_count = checked_count(static_cast<std::int64_t>(mine.size()));
  std::vector<int> counts(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(
      MPI_Iallgather(&my_count, 1, MPI_INT, counts.data(), 1, MPI_INT, comm_, &request));
  wait(request);
  std::vector<int> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + counts.back()), '\0');
  TANDEM_CHECK_MPI(MPI_Iallgatherv(mine.data(), my_count, MPI_CHAR, all.data(), counts.data(),
                                   offsets.data(), MPI_CHAR, comm_, &request));
  wait(request);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < counts.size(); ++r)
    texts.push_back(
        all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r])));
  return texts;
}

std::int64_t ControlPlane::min(std::int64_t mine) {
  const StageScope stage(progress_, StageKind::kCollective, "agreement of all ranks");
  std::int64_t result = mine;
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Iallreduce(&mine, &result, 1, MPI_INT64_T, MPI_MIN, comm_, &request));
  wait(request);
  return result;
}

std::int64_t ControlPlane::max(std::int64_t mine) {
  const StageScope stage(progress_, StageKind::kCollective, "agreement of all ranks");
  std::int64_t result = mine;
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Iallreduce(&mine, &result, 1, MPI_INT64_T, MPI_MAX, comm_, &request));
  wait(request);
  return result;
}

void ControlPlane::barrier() {
  const StageScope stage(progress_, StageKind::kCollective, "barrier");
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Ibarrier(comm_, &request));
  wait(request);
}

void ControlPlane::together(const std::function<void()>& work) { agree(work, true); }

void ControlPlane::on_first(const std::function<void()>& work) {
  agree(
      rank_ == 0 ? work : [] {}, false);
}

void ControlPlane::agree(const std::function<void()>& work, bool name_rank) {
  // One letter for the outcome, then the text.
  std::string outcome = "k";
  try {
    work();
  } catch (const ConfigError& error) {
    outcome = concat("c", error.what());
  } catch (const std::bad_alloc&) {
    outcome =
        "cno memory is left for the model: use a smaller one, --max-model-len or "
        "--kv-cache-memory with a smaller value, or more hosts";
  } catch (const std::exception& error) {
    outcome = concat("e", error.what());
  }
  const std::vector<std::string> outcomes = all_gather(outcome);
  const auto failed = [](const std::string& text) { return text[0] != 'k'; };
  const auto first = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (first == outcomes.end()) return;
  std::string text = first->substr(1);
  if (name_rank && !std::all_of(outcomes.begin(), outcomes.end(), failed))
    text = concat("rank ", first - outcomes.begin(), ": ", text);
  if ((*first)[0] == 'c') throw ConfigError(text);
  throw Error(text);
}

}  // namespace tandem::comm
