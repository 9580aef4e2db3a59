// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_comm.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/nccl_check.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::comm {
namespace {

/// Shared with the helper thread, which outlives the wait when NCCL never returns.
struct InitState {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  ncclResult_t result = ncclInternalError;
  std::string error;
  ncclComm_t comm = nullptr;
};

ncclUniqueId share_id(ControlPlane& control) {
  ncclUniqueId id{};
  std::vector<std::byte> bytes(sizeof id);
  control.together([&] {
    if (control.rank() == 0) TANDEM_CHECK(ncclGetUniqueId(&id));
  });
  std::memcpy(bytes.data(), &id, sizeof id);
  control.broadcast(bytes);
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

void start_init(const std::shared_ptr<InitState>& state, ncclUniqueId id, int rank, int size,
                const NcclCommOptions& options) {
  int device = 0;
  TANDEM_CHECK(cudaGetDevice(&device));
  std::thread([state, id, rank, size, device, name = options.name, max_ctas = options.max_ctas] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = name;
    if (max_ctas > 0) config.maxCTAs = max_ctas;
    ncclComm_t comm = nullptr;
    ncclResult_t result = ncclUnhandledCudaError;
    if (cudaSetDevice(device) == cudaSuccess)
      result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    const std::lock_guard lock(state->mutex);
    state->result = result;
    state->comm = comm;
    if (result != ncclSuccess)
      state->error = concat(ncclGetErrorString(result), "; ", ncclGetLastError(nullptr));
    state->done = true;
    state->done_changed.notify_all();
  }).detach();
}

/// "ok", "late", or NCCL's own words.
std::string wait_init(InitState& state, std::chrono::seconds deadline, ncclComm_t& comm) {
  std::unique_lock lock(state.mutex);
  if (!state.done_changed.wait_for(lock, deadline, [&] { return state.done; })) return "late";
  if (state.result != ncclSuccess) return state.error;
  comm = state.comm;
  return "ok";
}

/// One sentence from the outcomes of all ranks; empty when all are fine.
std::string summarize(const std::vector<std::string>& outcomes, std::chrono::seconds deadline) {
  std::string late, failed;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (outcomes[r] == "late") late += concat(late.empty() ? "" : ", ", r);
    if (outcomes[r] != "late" && outcomes[r] != "ok" && failed.empty())
      failed = concat("NCCL did not start on rank ", r, ": ", outcomes[r]);
  }
  if (!failed.empty()) return concat(failed, "; NCCL_DEBUG=INFO says more");
  if (late.empty()) return {};
  return concat("NCCL did not connect within ", deadline.count(), " s on rank(s) ", late,
                ": check NCCL_SOCKET_IFNAME and firewalls between the hosts; NCCL_DEBUG=INFO says "
                "how far each rank came");
}

}  // namespace

NcclComm::NcclComm(ControlPlane& control, const NcclCommOptions& options) {
  const ncclUniqueId id = share_id(control);
  const auto state = std::make_shared<InitState>();
  control.together([&] { start_init(state, id, control.rank(), control.size(), options); });
  const std::string mine = wait_init(*state, options.deadline, comm_);
  const std::string problem = summarize(control.all_gather(mine), options.deadline);
  if (problem.empty()) return;
  abort();
  throw Error(problem);
}

NcclComm::~NcclComm() {
  if (comm_ != nullptr) TANDEM_CHECK_NOEXCEPT(ncclCommDestroy(comm_));
}

std::string NcclComm::async_error() const {
  if (comm_ == nullptr) return {};
  ncclResult_t result = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return "NCCL cannot be asked";
  if (result == ncclSuccess || result == ncclInProgress) return {};
  return concat("NCCL: ", ncclGetErrorString(result), "; ", ncclGetLastError(comm_));
}

void NcclComm::abort() noexcept {
  if (comm_ == nullptr) return;
  TANDEM_CHECK_NOEXCEPT(ncclCommAbort(comm_));
  comm_ = nullptr;
}

}  // namespace tandem::comm
