// SPDX-License-Identifier: Apache-2.0
// The engine of one rank, written once over the device: applies a plan's edits, runs the decoder,
// samples, and brings tokens back while the next step runs. Decode-only steps replay a graph per
// batch bucket; steps with prefill run eagerly.
//
// Teardown is member order reversed: graphs, then samplers and activations, the cache, the slots,
// weights, the communicator, and the context with its streams last.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <deque>
#include <map>
#include <memory>

#include "kernels/device/cpu/stamps.h"
#include "runtime/decoder.h"
#include "runtime/engine_config.h"
#include "runtime/head_sampler.h"
#include "runtime/slots.h"
#include "runtime/step_inputs.h"

namespace tandem::runtime {

/// What a decode graph is captured for: rows and a bound of their KV lengths.
struct DecodeBucket {
  std::int32_t rows = 0, max_kv_tokens = 0;
  auto operator<=>(const DecodeBucket&) const = default;
};

template <typename T, Device D>
class DeviceEngine final : public Engine {
 public:
  struct Parts {
    std::unique_ptr<Context<D>> context;
    std::unique_ptr<comm::Communicator<D>> communicator;  ///< Null for one rank.
    Model<T, D> model;
    EngineLimits limits;
    std::int64_t kv_segment_bytes = 0;
    bool use_graphs = true;
    std::int32_t overlap_min_tokens = kNeverOverlap;  ///< Rows of a step that runs in two halves.
    int rank = 0, size = 1;
    comm::Progress* progress = nullptr;  ///< Where stages are published, or null.
    Recorder* recorder = nullptr;        ///< What the report of waits is made of, or null.
  };
  explicit DeviceEngine(Parts parts);

  /// Runs and captures every decode graph that steps can need, largest first; collective, at
  /// start-up. A device whose graphs cost nothing makes them when they are used.
  void capture_decode_graphs();

  /// Seconds of a step of `tokens` prefill rows that belong to no sequence: all matmuls and sums
  /// run, attention has no keys, and neither cache nor slots change. Collective; synchronous.
  double time_prefill(std::int32_t tokens, bool overlapped);

  const EngineLimits& limits() const override { return limits_; }
  void submit(const BatchPlan& plan) override;
  StepOutput collect() override;
  std::string device_error() const override;
  std::optional<comm::DevicePosition> device_position() const override;
  void abandon() noexcept override;
  void finish_recording() override { stamps_.finish(*context_); }

  /// Calls visit(graph) for every decode graph.
  template <typename Visit>
  void visit_graphs(const Visit& visit) const {
    for (const auto& [bucket, graph] : decode_graphs_) visit(graph);
  }
  void set_trial(const PrefillTrial& trial) override;
  void set_overlap_min_tokens(std::int32_t tokens) override { overlap_min_tokens_ = tokens; }

  const Decoder<T, D>& decoder() const { return decoder_; }
  /// Halves deal their rows over the ranks from here on.
  void exchange_rows(std::unique_ptr<comm::RowExchange<D>> rows) {
    rows_ = std::move(rows);
    group_.rows = rows_.get();
  }
  Context<D>& context() { return *context_; }
  comm::Communicator<D>& communicator() { return *communicator_; }

  /// For tests: this rank's logits of the last step.
  const HeadSampler<T, D>& sampler() const { return sampler_; }

 private:
  /// Where a step's tokens arrive on the host; two take turns.
  struct Readback {
    HostBuffer<std::int32_t, D> tokens;
    HostBuffer<kernels::TokenLogprob, D> logprobs, scores;
    Event<D> done;
  };
  struct Pending {
    std::int64_t step = 0;
    std::int32_t decode = 0, padded_decode = 0, samples = 0, scores = 0;
    bool logprobs = false;
    int turn = 0;
  };

  void begin_rows();
  void run_rows(const SampleChoice& choice, bool overlapped = false);
  void run_eager(const SampleChoice& choice, bool overlapped, bool stamped);
  void run_decode(const SampleChoice& choice, DecodeBucket bucket);
  void read_back(const BatchPlan& plan, std::int32_t padded_decode);
  void copy_chunks(const BatchPlan& plan);

  EngineLimits limits_;
  std::unique_ptr<Context<D>> context_;
  std::unique_ptr<comm::Communicator<D>> communicator_;
  parallel::TpGroup<D> group_;
  Model<T, D> model_;
  Slots<D> slots_;
  kvcache::KvCache<T, D> kv_;
  StepInputs<D> inputs_;
  Decoder<T, D> decoder_;
  std::unique_ptr<comm::RowExchange<D>> rows_;  ///< Null: all-reduces. Writes into `decoder_`.
  HeadSampler<T, D> sampler_;
  std::array<Readback, 2> readback_;
  Event<D> ran_;  ///< The newest step, on the compute stream.
  int turn_ = 0;
  std::deque<Pending> pending_;
  std::int32_t overlap_min_tokens_;
  bool shared_domain_ = false;  ///< Of a trial.
  bool use_graphs_;
  bool rows_ready_ = false;  ///< The step before has left the rows of the next one.
  std::atomic<bool> abandoned_{false};
  Recorder* recorder_;
  Stamps<D> stamps_;
  std::map<DecodeBucket, Graph<D>> decode_graphs_;
  /// The same with stamps between its ops, and what they mean; made when a recorded step needs it.
  struct StampedGraph {
    Graph<D> graph;
    typename Stamps<D>::List list;
  };
  std::map<DecodeBucket, StampedGraph> stamped_graphs_;
};

}  // namespace tandem::runtime
