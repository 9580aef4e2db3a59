// SPDX-License-Identifier: Apache-2.0
// What one rank did and when: spans of host phases and of ops, on the clock of this host. Written
// by the step thread only; read when the run is over. A rank that records nothing has no recorder:
// every place that could record holds a null pointer. Holds at most the spans given at the start;
// later ones are dropped, and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tandem {

/// What a span was spent on. Ops first, then collectives, then phases of the step thread.
enum class Activity : std::uint8_t {
  kEmbed,
  kQkvProject,
  kAttend,
  kProject,  ///< Attention output.
  kGateUpAct,
  kDown,
  kAddNorm,
  kHead,
  kSample,
  kSlots,
  kCopyChunks,
  kLayers,  ///< Layers without stamps of their own (CUDA): shared out like the stamped ones.
  kStamps,  ///< From one stamp to the next with nothing between them (CUDA): a kernel's end.
  kAllReduce,
  kAllGather,
  kSchedule,   ///< Requests in, plan, commit of tokens.
  kDeliver,    ///< Tokens to their users: text, printing, HTTP.
  kSendPlan,   ///< Rank 0 broadcasts.
  kAwaitPlan,  ///< The others wait for it.
  kCompare,    ///< Ranks compare the digests of their steps.
  kSubmit,     ///< Uploads and launches; what is left of it beside the ops.
  kCollect,    ///< Waits for the device.
  kMap,        ///< The KV cache grows, scratch memory is made larger.
  kIdle,       ///< No requests.
  kCount
};
inline constexpr int kNumActivities = static_cast<int>(Activity::kCount);

const char* name(Activity activity);
inline bool is_op(Activity activity) { return activity < Activity::kSchedule; }
inline bool is_collective(Activity activity) {
  return activity == Activity::kAllReduce || activity == Activity::kAllGather;
}

/// Where a span ran. Ops of a CPU rank run on the step thread, but count as its compute stream.
enum class Lane : std::uint8_t { kHost, kCompute, kComm };

/// The KV lengths of one step's rows, from its plan: what attention has to read and multiply.
struct StepWork {
  struct Segment {
    std::int32_t begin = 0, tokens = 0;
  };
  std::vector<std::int32_t> decode_lengths;  ///< Keys that each decode row sees.
  std::vector<Segment> segments;

  /// Keys read, each sequence's once; `window` 0: all.
  double kv_tokens(std::int32_t window) const;
  /// Pairs of a query row and a key it sees.
  double pairs(std::int32_t window) const;
  std::int64_t rows() const;
};

/// The least an op has to move and compute on this rank.
struct OpWork {
  double bytes = 0, flops = 0;
  double bytes_per_kv_token = 0, flops_per_pair = 0;  ///< Attention's, times the step's.
  std::int32_t window = 0;
  std::int64_t rows = 0;  ///< Attention's: with fewer than the step has, it is charged its share.

  /// With the step's keys and pairs counted in; nothing per key or pair is left.
  OpWork in_step(const StepWork& step) const;
};

struct TimeSpan {
  std::int64_t begin_ns = 0, end_ns = 0;  ///< On `Recorder::now_ns`.
  std::int32_t step = -1;                 ///< Of the plan submitted last.
  std::int16_t layer = -1;                ///< -1: outside of layers. kLayers: how many.
  Activity activity = Activity::kIdle;
  Lane lane = Lane::kHost;
  double bytes = 0, flops = 0;
  std::int16_t kernels = 0;  ///< That ended in it, on a GPU; apart from them
  std::int16_t stamps = 0;   ///< kernels that only measure.
  float fence_ns = 0;        ///< What a kernel's end cost around it; 0: not known.
  float tile_share = 0;      ///< Of this time the matrix units of attention waited for tiles.
};

/// One step, as all ranks know it.
struct StepRecord {
  std::int32_t step = 0, decode_rows = 0, prefill_tokens = 0;
  std::int32_t stamped = 1;  ///< 0: a step whose ops were left unmeasured on purpose (CUDA).
};

class Recorder {
 public:
  static constexpr std::int64_t kNone = -1;
  explicit Recorder(std::size_t max_spans = std::size_t{1} << 20);

  /// Nanoseconds of this host's monotonic clock.
  static std::int64_t now_ns();

  /// Spans from here on belong to this step.
  void begin_step(const StepRecord& step, StepWork work);
  /// Whether the ops of the step that was begun last are measured.
  void set_stamped(bool stamped) {
    if (!steps_.empty()) steps_.back().stamped = stamped ? 1 : 0;
  }
  /// While paused nothing is recorded, and no step has stamps.
  void pause(bool paused) { paused_ = paused; }
  bool paused() const { return paused_; }
  void set_layer(int layer) { layer_ = static_cast<std::int16_t>(layer); }
  const StepWork& work() const { return work_; }
  int step() const { return steps_.empty() ? -1 : steps_.back().step; }

  /// Opens a span on the step thread; spans nest. `end` takes what `begin` returned.
  std::int64_t begin(Activity activity, const OpWork& work = {});
  void end(std::int64_t span);
  /// A span that was measured elsewhere (device stamps).
  void add(const TimeSpan& span);

  const std::vector<TimeSpan>& spans() const { return spans_; }
  const std::vector<StepRecord>& steps() const { return steps_; }
  std::int64_t dropped() const { return dropped_; }

  /// Tests only: runs inside each span, right after its beginning, and can make it longer.
  std::function<void(Activity, int layer)> probe;

 private:
  bool full();

  std::size_t max_spans_;
  std::vector<TimeSpan> spans_;
  std::vector<StepRecord> steps_;
  StepWork work_;
  std::int16_t layer_ = -1;
  bool paused_ = false;
  std::int64_t dropped_ = 0;
};

}  // namespace tandem
