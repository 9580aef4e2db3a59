// SPDX-License-Identifier: Apache-2.0
// Where a prefill's time goes: every kernel of one layer of Llama-3-8B on one GPU, for the token
// counts given as arguments (2048 and 8192 without), timed by itself with the memory that the
// kernels before it left behind, then the layer as a whole. Bytes and operations are those of the
// op's definition. JSON (DESIGN 10) on stdout, readable lines on stderr; "not matmul or attention"
// is the share of norms, rotary embedding, KV append and activation.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>

#include "kernels/attend.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/cuda/event.h"
#include "kernels/gate_up_act.h"
#include "kernels/qkv_project.h"
#include "tests/bench/report.h"

namespace tandem::bench {
namespace {

using E = BFloat16;
using Weight = kernels::LinearWeight<E, Cuda>;

constexpr std::int64_t kHidden = 4096, kHeads = 32, kKvHeads = 8, kDim = 128, kMlp = 14336;
constexpr std::int64_t kQ = kHeads * kDim, kQkv = kQ + 2 * kKvHeads * kDim;
constexpr int kLayers = 32, kRuns = 11;

template <typename V>
Buffer<V, Cuda> upload(Context<Cuda>& ctx, const std::vector<V>& host) {
  Buffer<V, Cuda> device(static_cast<std::int64_t>(host.size()));
  copy_to_device(ctx, device.data(), host.data(), device.size_bytes());
  ctx.compute().synchronize();
  return device;
}

Buffer<E, Cuda> random(Context<Cuda>& ctx, std::int64_t size, float deviation) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<E> block(1 << 18), values(static_cast<std::size_t>(size));
  for (E& value : block) value = E(normal(generator));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = block[(i * 7) % block.size()];
  return upload(ctx, values);
}

/// A layer's weights, activations and cache, and the ops in their order.
class Layer {
 public:
  Layer(Context<Cuda>& ctx, std::int32_t tokens)
      : ctx_(ctx),
        tokens_(tokens),
        residual_(random(ctx, tokens * kHidden, 1.0f)),
        normed_(random(ctx, tokens * kHidden, 1.0f)),
        scratch_(tokens * kHidden),
        qkv_(tokens * kQkv),
        attended_(tokens * kQ),
        gate_up_(tokens * 2 * kMlp),
        activated_(tokens * kMlp),
        cache_(random(ctx, chunks() * chunk_size(), 1.0f)),
        qkv_weight_(weight(kQkv, kHidden)),
        o_weight_(weight(kHidden, kQ)),
        gate_up_weight_(weight(2 * kMlp, kHidden)),
        down_weight_(weight(kHidden, kMlp)) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens)), map;
    std::vector<std::int32_t> table(static_cast<std::size_t>(chunks()));
    std::iota(positions.begin(), positions.end(), 0);
    std::iota(table.begin(), table.end(), 0);
    for (int head = 0; head < kHeads; ++head) map.push_back(head / (kHeads / kKvHeads));
    positions_ = upload(ctx, positions);
    slots_ = upload(ctx, std::vector<std::int32_t>(positions.size()));
    begins_ = upload(ctx, std::vector<std::int32_t>{0, tokens});
    table_ = upload(ctx, table);
    map_ = upload(ctx, map);
    norm_ = upload(ctx, std::vector<float>(kHidden, 1.0f));
    cos_ = upload(ctx, std::vector<float>(positions.size() * kDim / 2, 0.8f));
    sin_ = upload(ctx, std::vector<float>(positions.size() * kDim / 2, 0.6f));
    step_.num_tokens = step_.max_segment_tokens = step_.max_kv_tokens = tokens;
    step_.num_segments = 1;
    step_.positions = positions_.data();
    step_.slots = slots_.data();
    step_.segment_begin = begins_.data();
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  struct Op {
    std::string name;
    std::function<void()> run;
    double bytes, flops;  ///< 0 flops: it is bound by memory.
    bool counted;         ///< One of norms, rotary embedding, append, activation.
  };
  std::vector<Op> ops() {
    const auto m = static_cast<double>(tokens_);
    const auto product = [&](const std::string& name, const Buffer<E, Cuda>& x, const Weight& w,
                             const Buffer<E, Cuda>& y) {
      return Op{name, [&, this] { multiply(x, w, y); }, 0, 2 * m * w.rows() * w.cols(), false};
    };
    const auto residual_product = [&](const std::string& name, const Buffer<E, Cuda>& x,
                                      const Weight& w) {
      return Op{name,
                [&, this] {
                  kernels::add_matmul<E>(ctx_, view(x, w.cols()), w, 1e-3f,
                                         residual_.view(tokens_, kHidden),
                                         scratch_.view(tokens_, kHidden));
                },
                0, 2 * m * w.rows() * w.cols(), false};
    };
    const Op norm{"norm", [this] { kernels::add_norm(ctx_, norm_args()); }, 4 * m * kHidden, 0,
                  true};
    return {product("qkv matmul", normed_, qkv_weight_, qkv_),
            {"rotary and append", [this] { kernels::qkv_finish(ctx_, qkv_args()); }, 4 * m * kQkv,
             0, true},
            {"attention", [this] { attend(); }, 0, 2 * m * m * kQ, false},
            residual_product("o matmul + residual", attended_, o_weight_),
            norm,
            product("gate, up matmul", normed_, gate_up_weight_, gate_up_),
            {"activation", [this] { activate(); }, 6 * m * kMlp, 0, true},
            residual_product("down matmul + residual", activated_, down_weight_),
            norm};
  }
  /// The op that holds the gate and up matmul and the activation: its kernels cannot be called
  /// apart.
  void activate() {
    kernels::GateUpArgs<E, Cuda> args;
    args.x = view(normed_, kHidden);
    args.weight = &gate_up_weight_;
    args.scratch = gate_up_.view(tokens_, 2 * kMlp);
    args.out = activated_.view(tokens_, kMlp);
    kernels::gate_up_act(ctx_, args);
  }

 private:
  std::int64_t chunks() const {
    return (tokens_ + kernels::kChunkTokens - 1) / kernels::kChunkTokens;
  }
  static std::int64_t chunk_size() { return 2 * kKvHeads * kernels::kChunkTokens * kDim; }
  Weight weight(std::int64_t rows, std::int64_t cols) {
    return Weight(ctx_, random(ctx_, rows * cols, 0.02f), rows, cols);
  }
  TensorView<const E, Cuda> view(const Buffer<E, Cuda>& buffer, std::int64_t cols) const {
    return {buffer.data(), tokens_, cols};
  }
  void multiply(const Buffer<E, Cuda>& x, const Weight& w, const Buffer<E, Cuda>& y) {
    kernels::matmul<E, E>(ctx_, view(x, w.cols()), w, y.view(tokens_, w.rows()));
  }
  kernels::AddNormArgs<E, Cuda> norm_args() const {
    kernels::AddNormArgs<E, Cuda> args;
    args.residual = residual_.view(tokens_, kHidden);
    args.next_norm = {norm_.data(), 1e-5f};
    args.normed = normed_.view(tokens_, kHidden);
    return args;
  }
  kernels::QkvArgs<E, Cuda> qkv_args() const {
    kernels::QkvArgs<E, Cuda> args;
    args.step = &step_;
    args.x = view(normed_, kHidden);
    args.weight = &qkv_weight_;
    args.rope = {cos_.data(), sin_.data(), kDim};
    args.num_q_heads = kHeads;
    args.kv = kv();
    args.qkv = qkv_.view(tokens_, kQkv);
    return args;
  }
  kernels::KvView<E, Cuda> kv() const {
    return {cache_.data(),
            chunk_size(),
            chunk_size(),
            kKvHeads,
            kDim,
            table_.data(),
            static_cast<std::int32_t>(chunks())};
  }
  void attend() {
    kernels::AttendArgs<E, Cuda> args;
    args.step = &step_;
    args.q = view(qkv_, kQ);
    args.q.stride = kQkv;
    args.kv = kv();
    args.kv_head_of_q = map_.data();
    args.num_q_heads = kHeads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(kDim));
    args.out = attended_.view(tokens_, kQ);
    kernels::attend(ctx_, args);
  }

  Context<Cuda>& ctx_;
  std::int64_t tokens_;
  Buffer<E, Cuda> residual_, normed_, scratch_, qkv_, attended_, gate_up_, activated_, cache_;
  Weight qkv_weight_, o_weight_, gate_up_weight_, down_weight_;
  Buffer<std::int32_t, Cuda> positions_, slots_, begins_, table_, map_;
  Buffer<float, Cuda> norm_, cos_, sin_;
  kernels::StepView<Cuda> step_;
};

/// Medians in ms: of every op between two events inside a run of the whole layer.
void measure(Context<Cuda>& ctx, std::int32_t tokens, Report& report) {
  Layer layer(ctx, tokens);
  std::vector<Layer::Op> ops = layer.ops();
  std::vector<std::vector<double>> times(ops.size() + 1);
  std::vector<Event<Cuda>> events;
  for (std::size_t i = 0; i <= ops.size(); ++i) events.emplace_back(true);
  for (int run = -2; run < kRuns; ++run) {  // The first runs tune and warm up.
    for (std::size_t i = 0; i < ops.size(); ++i) {
      events[i].record(ctx.compute());
      ops[i].run();
    }
    events.back().record(ctx.compute());
    events.back().synchronize();
    for (std::size_t i = 0; run >= 0 && i < ops.size(); ++i)
      times[i].push_back(static_cast<double>(events[i + 1].milliseconds_since(events[i])));
  }
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + kRuns / 2, values.end());
    return values[kRuns / 2];
  };
  double total = 0, counted = 0, gate_up = 0;
  const std::string label = concat("llama-3-8b layer prefill", tokens, " ");
  for (std::size_t i = 0; i < ops.size(); ++i) {
    // "activation" ran the matmul too.
    if (ops[i].name == "gate, up matmul") gate_up = median(times[i]);
    if (ops[i].name == "activation")
      for (double& ms : times[i]) ms = std::max(0.0, ms - gate_up);
    const double ms = median(times[i]);
    total += ms;
    if (ops[i].counted) counted += ms;
    report.add_median(label + ops[i].name, "time", "ms", times[i], 0);
    if (ops[i].flops > 0)
      report.add_median(label + ops[i].name, "rate", "TFLOP/s", {ops[i].flops / ms / 1e9}, 0);
    else
      report.add_median(label + ops[i].name, "rate", "GB/s", {ops[i].bytes / ms / 1e6}, 0);
  }
  report.add_median(label + "all", "time", "ms", {total}, 0);
  report.add_median(label + "all layers", "time", "ms", {total * kLayers}, 0);
  report.add_median(label + "not matmul or attention", "share", "%", {100 * counted / total}, 0);
}

int run(int argc, char** argv) {
  Context<Cuda> ctx{CudaOptions{}};
  Report report("prefill_layer", argc, argv);
  std::vector<std::int32_t> tokens;
  for (int i = 1; i < argc; ++i) tokens.push_back(std::atoi(argv[i]));
  if (tokens.empty()) tokens = {2048, 8192};
  for (const std::int32_t count : tokens) {
    TANDEM_REQUIRE(count > 64, "a prefill of ", count,
                   " tokens is a decode batch: name at least 65");
    measure(ctx, count, report);
  }
  report.print();
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  try {
    return tandem::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "prefill_layer_bench: %s\n", error.what());
    return 1;
  }
}
