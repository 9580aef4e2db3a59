// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/domains_cuda/domains_nccl.h"

#include <nccl.h>

#include <cstdlib>

#include "comm/nccl_check.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kElements = 16 << 20;  // 64 MiB of floats
constexpr int kAggressorCalls = 40;           // ten milliseconds: longer than any victim
constexpr int kVictimCalls = 4;

class TwoGpus final : public NcclPair {
 public:
  explicit TwoGpus(Context<Cuda>& ctx) : ctx_(ctx) {
    ::setenv("NCCL_NVLS_ENABLE", "0", 0);  // multicast stays off, as in the engine
    const int devices[2] = {0, 1};
    TANDEM_CHECK(ncclCommInitAll(comms_, 2, devices));
    for (const int device : {1, 0}) {
      TANDEM_CHECK(cudaSetDevice(device));
      TANDEM_CHECK(cudaMalloc(&buffers_[device], kElements * sizeof(float)));
      TANDEM_CHECK(cudaMemset(buffers_[device], 0, kElements * sizeof(float)));
      if (device == 1) TANDEM_CHECK(cudaStreamCreateWithFlags(&peer_, cudaStreamNonBlocking));
      TANDEM_CHECK(cudaDeviceSynchronize());
    }
  }
  TwoGpus(const TwoGpus&) = delete;
  TwoGpus& operator=(const TwoGpus&) = delete;
  ~TwoGpus() override {
    for (ncclComm_t comm : comms_) TANDEM_CHECK_NOEXCEPT(ncclCommDestroy(comm));
    for (void* buffer : buffers_) TANDEM_CHECK_NOEXCEPT(cudaFree(buffer));
    TANDEM_CHECK_NOEXCEPT(cudaStreamDestroy(peer_));
  }

  Aggressor aggressor() override {
    Aggressor aggressor;
    aggressor.name = "NCCL all-reduce of 64 MiB";
    aggressor.enqueue = [this](Stream<Cuda>& stream) {
      for (int call = 0; call < kAggressorCalls; ++call) all_reduce(stream);
    };
    aggressor.enqueued_bytes = 1.0 * kAggressorCalls * kElements * sizeof(float);
    return aggressor;
  }

  Victim victim() override {
    return {"NCCL all-reduce of 64 MiB",
            "us a call",
            [this] {
              fork_.record(ctx_.compute());
              fork_.block(ctx_.comm());
              for (int call = 0; call < kVictimCalls; ++call) all_reduce(ctx_.comm());
              join_.record(ctx_.comm());
              join_.block(ctx_.compute());
            },
            [](double ms) { return ms * 1e3 / kVictimCalls; },
            ctx_.comm_domain(),
            false};
  }

 private:
  void all_reduce(Stream<Cuda>& stream) {
    TANDEM_CHECK(ncclGroupStart());
    for (const int device : {0, 1})
      TANDEM_CHECK(ncclAllReduce(buffers_[device], buffers_[device], kElements, ncclFloat, ncclSum,
                                 comms_[device], device == 0 ? stream.handle() : peer_));
    TANDEM_CHECK(ncclGroupEnd());
  }

  Context<Cuda>& ctx_;
  ncclComm_t comms_[2] = {};
  void* buffers_[2] = {};
  cudaStream_t peer_ = nullptr;
  Event<Cuda> fork_, join_;
};

}  // namespace

std::unique_ptr<NcclPair> NcclPair::make(Context<Cuda>& ctx) {
  int count = 0;
  TANDEM_CHECK(cudaGetDeviceCount(&count));
  if (count < 2) return nullptr;
  auto pair = std::make_unique<TwoGpus>(ctx);
  ctx.make_current();
  return pair;
}

}  // namespace tandem::bench
