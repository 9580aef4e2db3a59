// SPDX-License-Identifier: Apache-2.0
// When ops ran on the GPU, by its own clock: kernels of one warp per SM between the ops write
// %globaltimer into a buffer of this object, in eager steps and in captured graphs alike. They keep
// the PDL rule and trigger at once, so the kernel behind a stamp still loads its weights early;
// what a stamp adds is the hand-over of one small kernel (about 1 us in a graph on an H200; decode
// of Llama-3-8B, batch 1: 3.94 ms instead of 3.93). In graphs only some layers are stamped, the
// ones between are one span, and every eighth step has no stamps but its first and last, so that a
// report can say what measuring cost. Between two ops there are two stamps: what lies between them
// is the end of a kernel like an op's and nothing else. Without a recorder nothing is allocated or
// enqueued. Step thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/stamp.h"
#include "kernels/device/host_buffer.h"
#include "kernels/device/op_timer.h"

namespace tandem {

template <>
class Stamps<Cuda> {
 public:
  struct Op {
    Activity activity = Activity::kLayers;
    std::int16_t layer = -1;  ///< kLayers: how many.
    OpWork work;
    int begin = 0, end = 0;       ///< Places in the buffer.
    int kernels = 0, stamps = 1;  ///< Kernels that ended in it.
    int tiles = -1;               ///< Which counters of waits for tiles; -1: none.
  };
  /// The ops of one step, as enqueued or captured.
  struct List {
    std::vector<Op> ops;
    int used = 0;   ///< Places taken.
    int tiles = 0;  ///< Counters taken.
  };

  /// `recorder` may be null. Enqueues and waits for a few stamps to compare clocks.
  Stamps(Context<Cuda>& ctx, Recorder* recorder);

  /// Enqueues the step's first stamp. `turn` is 0 or 1: which read-back. False: this step's ops are
  /// to run without stamps.
  bool begin_step(Context<Cuda>& ctx, int turn);
  /// Runs `body` with its ops stamped into `list`; `all_layers` false: only every eighth.
  template <typename Body>
  void into(Context<Cuda>& ctx, List& list, bool all_layers, Body&& body) {
    if (host_ == nullptr) return body();
    open(ctx, list, all_layers);
    body();
    close();
  }
  /// Where an eager step's ops go.
  List& eager_list() { return eager_[turn_]; }
  /// The list of the ops just launched.
  void use(const List& list) { steps_[turn_].list = &list; }
  /// Enqueues the last stamp and the copy to the host.
  void end_step(Context<Cuda>& ctx);
  /// The step of `turn` is done on the device.
  void collect(int turn);
  /// Compares clocks again and gives all spans to the recorder.
  void finish(Context<Cuda>& ctx);

  /// What OpTimer calls, inside `into`.
  std::int64_t begin(Activity activity, const OpWork& work);
  void end(std::int64_t op);
  /// For an op whose second part is another activity inside the same kernel: the place that the
  /// kernel itself writes in between, or null when this layer is not stamped ...
  std::uint64_t* reserve();
  /// ... and, once it is enqueued: the op that is open ends there, `activity` goes on until its
  /// end.
  void hand_over(Activity activity, const OpWork& work);
  /// Counters, zero, for attention of the op that is open; null when there are none.
  TileWaits* tile_waits();
  void set_layer(int layer) { layer_ = static_cast<std::int16_t>(layer); }

 private:
  struct Step {
    bool recorded = false;
    std::int32_t step = -1;
    const List* list = nullptr;
    StepWork work;
  };
  /// One moment on both clocks.
  struct Moment {
    std::int64_t host_ns = 0, device_ns = 0;
  };

  void open(Context<Cuda>& ctx, List& list, bool all_layers);
  void close();
  int place();
  int begin_place(Activity activity);
  void add_spans(const List& list, int turn, TimeSpan span, const StepWork& work);
  void end_unstamped_layers();
  Moment compare_clocks(Context<Cuda>& ctx);

  Recorder* host_;
  Buffer<StampTimes, Cuda> device_;
  Buffer<std::uint32_t, Cuda> lines_;  ///< What wide stamps write.
  Buffer<TileWaits, Cuda> tiles_;
  std::array<HostBuffer<StampTimes, Cuda>, 2> read_;
  std::array<HostBuffer<TileWaits, Cuda>, 2> read_tiles_;
  std::array<List, 2> eager_;
  std::array<Step, 2> steps_;
  std::vector<TimeSpan> spans_;  ///< On the GPU's clock.
  Moment first_;
  int turn_ = 0, num_steps_ = 0;

  Context<Cuda>* ctx_ = nullptr;  ///< Inside `into`.
  List* list_ = nullptr;
  bool all_layers_ = true;
  std::int16_t layer_ = -1, skipped_layer_ = -1;
  int last_ = -1;                             ///< The place written last.
  std::vector<std::int64_t> kernels_before_;  ///< Open ops; kernels enqueued when each began.
  std::int64_t skipping_ = Recorder::kNone;   ///< The open kLayers op.
  int reserved_ = -1;                         ///< The place that a kernel writes.
  std::int64_t handed_from_ = Recorder::kNone, handed_to_ = Recorder::kNone;
};

}  // namespace tandem
