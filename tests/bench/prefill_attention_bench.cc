// SPDX-License-Identifier: Apache-2.0
// Rate of the prefill attention kernel on one GPU. Prints one JSON object (DESIGN 10) on stdout and
// readable lines on stderr. FLOPs are those of the visible half: 2 * rows * keys * heads * head_dim
// for a causal square, as cuDNN and FlashAttention count; `cudnn_attention.py` measures the
// same cases. Each timed launch is between two events; the chunks of a sequence are scattered.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/attend_prefill.h"
#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/dtype.h"
#include "tests/bench/report.h"

namespace tandem::bench {
namespace {

using kernels::AttendArgs;
using kernels::kChunkTokens;
using kernels::StepView;

struct Case {
  std::string name;
  int head_dim, q_heads, kv_heads;
  int segments, prior, rows;
  int window;
};

template <typename T>
Buffer<T, Cuda> upload(Context<Cuda>& ctx, const std::vector<T>& host) {
  Buffer<T, Cuda> device(static_cast<std::int64_t>(host.size()));
  copy_to_device(ctx, device.data(), host.data(), device.size_bytes());
  return device;
}

std::vector<BFloat16> normal_values(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<BFloat16> block(1 << 20);
  for (BFloat16& value : block) value = BFloat16(normal(random));
  std::vector<BFloat16> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = block[(i * 7) % block.size()];
  return values;
}

/// Everything one launch needs, on the device.
class Workload {
 public:
  Workload(Context<Cuda>& ctx, const Case& c) {
    std::mt19937 random(5);
    const int rows = c.segments * c.rows, kv_tokens = c.prior + c.rows;
    const int chunks = (kv_tokens + kChunkTokens - 1) / kChunkTokens;
    std::vector<std::int32_t> positions, slots, begin{0}, map,
        table(static_cast<std::size_t>(c.segments * chunks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    for (int s = 0; s < c.segments; ++s) {
      for (int r = 0; r < c.rows; ++r) positions.push_back(c.prior + r), slots.push_back(s);
      begin.push_back(begin.back() + c.rows);
    }
    for (int h = 0; h < c.q_heads; ++h) map.push_back(h * c.kv_heads / c.q_heads);
    const std::int64_t head_stride = std::int64_t{kChunkTokens} * c.head_dim;
    const std::int64_t chunk_stride = 2 * c.kv_heads * head_stride;
    // q lies in the rows of the fused projection, as in the engine
    const std::int64_t q_columns = std::int64_t{c.q_heads} * c.head_dim,
                       stride = q_columns + 2 * std::int64_t{c.kv_heads} * c.head_dim;
    cache_ = upload(ctx, normal_values(c.segments * chunks * chunk_stride, random));
    q_ = upload(ctx, normal_values(rows * stride, random));
    out_ = Buffer<BFloat16, Cuda>(rows * q_columns);
    positions_ = upload(ctx, positions);
    slots_ = upload(ctx, slots);
    begin_ = upload(ctx, begin);
    map_ = upload(ctx, map);
    table_ = upload(ctx, table);
    step_.num_tokens = rows;
    step_.num_segments = c.segments;
    step_.max_segment_tokens = c.rows;
    step_.max_kv_tokens = kv_tokens;
    step_.positions = positions_.data();
    step_.slots = slots_.data();
    step_.segment_begin = begin_.data();
    args_.step = &step_;
    args_.q = TensorView<const BFloat16, Cuda>(q_.data(), rows, q_columns);
    args_.q.stride = stride;
    args_.kv = {cache_.data(), chunk_stride,  chunk_stride, c.kv_heads,
                c.head_dim,    table_.data(), chunks};
    args_.kv_head_of_q = map_.data();
    args_.num_q_heads = c.q_heads;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    args_.window = c.window;
    args_.out = out_.view(rows, q_columns);
    ctx.compute().synchronize();
  }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const AttendArgs<BFloat16, Cuda>& args() const { return args_; }

 private:
  Buffer<BFloat16, Cuda> cache_, q_, out_;
  Buffer<std::int32_t, Cuda> positions_, slots_, begin_, map_, table_;
  StepView<Cuda> step_;
  AttendArgs<BFloat16, Cuda> args_;
};

/// Visible (row, key) pairs of one head; a causal square counts as half of its area.
double visible_pairs(const Case& c) {
  if (c.prior == 0 && c.window == 0) return 0.5 * c.rows * c.rows * c.segments;
  double pairs = 0;
  for (int r = 0; r < c.rows; ++r) {
    const int keys = c.prior + r + 1;
    pairs += c.window > 0 ? std::min(keys, c.window) : keys;
  }
  return pairs * c.segments;
}

class Timer {
 public:
  Timer() {
    TANDEM_CHECK(cudaEventCreate(&begin_));
    TANDEM_CHECK(cudaEventCreate(&end_));
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    TANDEM_CHECK_NOEXCEPT(cudaEventDestroy(begin_));
    TANDEM_CHECK_NOEXCEPT(cudaEventDestroy(end_));
  }
  /// Milliseconds of `calls` launches in a row, per launch.
  template <typename Call>
  double run(Context<Cuda>& ctx, int calls, Call&& call) {
    TANDEM_CHECK(cudaEventRecord(begin_, ctx.compute().handle()));
    for (int i = 0; i < calls; ++i) call();
    TANDEM_CHECK(cudaEventRecord(end_, ctx.compute().handle()));
    TANDEM_CHECK(cudaEventSynchronize(end_));
    float ms = 0;
    TANDEM_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) / calls;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

void measure(Context<Cuda>& ctx, const Case& c, Report& report) {
  constexpr int kRuns = 15;
  const Workload work(ctx, c);
  Timer timer;
  const auto call = [&] { attend_prefill(ctx, work.args()); };
  const double warm_ms = timer.run(ctx, 3, call);
  const int calls = std::clamp(static_cast<int>(20.0 / std::max(warm_ms, 0.01)), 1, 20);
  std::vector<double> rates;
  const double flops = 4 * visible_pairs(c) * c.q_heads * c.head_dim;
  for (int i = 0; i < kRuns; ++i) rates.push_back(flops / timer.run(ctx, calls, call) * 1e-9);
  report.add_median(c.name, "attention_rate", "TFLOP/s", rates, kBf16PeakTflops);

  Buffer<TileWaits, Cuda> waits(1);
  fill_zero(ctx, waits.data(), waits.size_bytes());
  attend_prefill(ctx, work.args(), waits.data());
  TileWaits host;
  copy_to_host(ctx, &host, waits.data(), waits.size_bytes());
  ctx.compute().synchronize();
  const double total = std::max(1.0, static_cast<double>(host.total));
  const auto share = [&](const char* metric, std::uint64_t cycles) {
    report.add_median(c.name, metric, "share of consumer cycles",
                      {static_cast<double>(cycles) / total}, 0);
  };
  share("waited_for_queries", host.query);
  share("waited_for_keys", host.key);
  share("waited_for_values", host.value);
}

}  // namespace

int run(int argc, char** argv) {
  const std::vector<Case> cases = {
      {"prefill attention bf16 32/8 d128 causal 2048", 128, 32, 8, 1, 0, 2048, 0},
      {"prefill attention bf16 32/8 d128 causal 8192", 128, 32, 8, 1, 0, 8192, 0},
      {"prefill attention bf16 32/8 d128 causal 32768", 128, 32, 8, 1, 0, 32768, 0},
      {"prefill attention bf16 32/8 d64 causal 2048", 64, 32, 8, 1, 0, 2048, 0},
      {"prefill attention bf16 32/8 d64 causal 8192", 64, 32, 8, 1, 0, 8192, 0},
      {"prefill attention bf16 32/8 d128 chunk 2048 after 30720", 128, 32, 8, 1, 30720, 2048, 0},
      {"prefill attention bf16 32/8 d128 16 x 512", 128, 32, 8, 16, 0, 512, 0},
      {"prefill attention bf16 32/8 d128 causal 32768 window 4096", 128, 32, 8, 1, 0, 32768, 4096},
  };
  Context<Cuda> ctx{CudaOptions{}};
  Report report("prefill_attention", argc, argv);
  for (const Case& c : cases)
    if (argc < 2 || c.name.find(argv[1]) != std::string::npos) measure(ctx, c, report);
  report.print();
  return 0;
}

}  // namespace tandem::bench

int main(int argc, char** argv) {
  try {
    return tandem::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "prefill_attention_bench: %s\n", error.what());
    return 1;
  }
}
