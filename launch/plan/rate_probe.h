// SPDX-License-Identifier: Apache-2.0
// Measures DeviceRates on the ranks of this job: the runtime's own ops, captured back to back over
// more memory than caches hold, as a step runs them; all ranks at once, the slowest counts.
// Device-generic; collective: every rank makes the same calls.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "kernels/gate_up_act.h"
#include "kernels/linear.h"
#include "launch/plan/attention_probe.h"
#include "launch/plan/rates.h"
#include "parallel/parallel_linear.h"

namespace tandem::launch {

struct MatmulShape {
  std::int64_t out = 0, in = 0;
  std::int64_t weight_bytes() const { return out * in * 2; }
};

/// What a device is measured at.
struct ProbeGrid {
  std::vector<MatmulShape> matmuls;  ///< Sizes of weights; `out` is a multiple of 32.
  std::vector<int> rows;
  std::int64_t pool_bytes = 0;  ///< More than the caches hold.
  double body_flops = 0;        ///< About as many operations are timed at once.
  std::vector<DecodePoint> decode;
  std::vector<int> prefill;  ///< Tokens of a prompt.
  AttentionShape attention;
  int most_layers = 0;                 ///< Of attention that are timed at once.
  std::vector<std::int64_t> messages;  ///< Bytes
};

inline ProbeGrid probe_grid(Cpu) {
  static_assert(kCpuProbeWidth == 9 * 64);
  return {{{512, 256}, {2048, 512}, {4096, 1024}, {8192, 2048}},
          {1, 4, 16, 32, 64, 256, 512},
          std::int64_t{64} << 20,
          1e9,
          {{1, 64}, {1, 512}, {4, 512}, {16, 1024}},
          {32, 128, 512, 1024},
          {9, 3, 64},
          800,
          {256, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20}};
}

inline ProbeGrid probe_grid(Cuda) {
  return {{{1024, 1024}, {4096, 2048}, {8192, 4096}, {16384, 8192}},
          {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192},
          std::int64_t{512} << 20,
          4e12,
          {{1, 64}, {1, 1024}, {4, 1024}, {32, 1024}, {64, 4096}},
          {128, 512, 2048, 8192},
          {32, 8, 128},
          32,
          {1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20, 128 << 20}};
}

template <Device D>
class RateProbe {
 public:
  RateProbe(Context<D>& ctx, comm::ControlPlane& control) : ctx_(ctx), control_(control) {}

  /// All curves; `communicator` is null on one rank alone.
  void measure(comm::Communicator<D>* communicator, DeviceRates& rates) {
    measure_matmuls(rates);
    measure_elementwise(rates);
    std::vector<std::pair<double, double>> decode, prefill;
    for (const DecodePoint& point : grid_.decode) {
      AttentionProbe<D> probe(ctx_, grid_.attention, grid_.pool_bytes, grid_.most_layers);
      probe.prepare_decode(point);
      const double work = std::is_same_v<D, Cuda> ? probe.kv_bytes() : probe.flops();
      decode.emplace_back(work, time_us(probe.layers(), [&] { probe.run(); }));
    }
    for (const int tokens : grid_.prefill) {
      AttentionProbe<D> probe(ctx_, grid_.attention, 0, grid_.most_layers);
      probe.prepare_prefill(tokens);
      // A prefill is eager, and a capture would get another kernel.
      prefill.emplace_back(probe.flops(), median_us(probe.layers(), [&] { probe.run(); }));
    }
    rates.decode_attention = TimeCurve(std::move(decode));
    rates.prefill_attention = TimeCurve(std::move(prefill));
    if (communicator != nullptr) measure_messages(*communicator, rates);
  }

 private:
  using T = BFloat16;
  static constexpr int kRuns = 5;
  static constexpr std::int64_t kWorkSize = 1024;

  /// Microseconds of one of the `ops` that `body` enqueues: the median run of the slowest rank.
  double time_us(double ops, const std::function<void()>& body) {
    body();  // shapes are tuned outside of the capture
    ctx_.compute().synchronize();
    Graph<D> graph = Graph<D>::capture(ctx_, body);
    return median_us(ops, [&] { graph.launch(ctx_.compute()); });
  }
  /// The same of what `enqueue` enqueues.
  double median_us(double ops, const std::function<void()>& enqueue) {
    using Clock = std::chrono::steady_clock;
    enqueue();
    ctx_.compute().synchronize();
    if constexpr (std::is_same_v<D, Cuda>) settle(enqueue);
    control_.barrier();
    std::vector<double> times;
    for (int run = 0; run < kRuns; ++run) {
      const auto start = Clock::now();
      enqueue();
      ctx_.compute().synchronize();
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    const auto ns = static_cast<std::int64_t>(times[kRuns / 2] * 1000 / ops);
    return std::max(static_cast<double>(control_.max(ns)) / 1000, 1e-3);
  }

  /// A GPU that computes runs into its power limit within some tenths of a second and lowers its
  /// clock, as it does in a prefill (H200: from 1980 MHz to as few as 1455). What is over in a
  /// moment is not held up. The same number of times on every rank.
  void settle(const std::function<void()>& enqueue) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kSettled{400'000}, kMoment{2000};
    const auto start = Clock::now();
    enqueue();
    ctx_.compute().synchronize();
    const std::int64_t longest = control_.max(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
    if (longest < kMoment.count()) return;
    for (std::int64_t at = longest; at < kSettled.count(); at += longest) {
      enqueue();
      ctx_.compute().synchronize();
    }
  }

  Buffer<T, D> filled(std::int64_t size) {
    std::vector<T> host(static_cast<std::size_t>(std::min<std::int64_t>(size, 1 << 16)));
    for (std::size_t i = 0; i < host.size(); ++i)
      host[i] = T(0.01f * (static_cast<float>(i % 23) - 11.0f));
    Buffer<T, D> buffer(size);
    for (std::int64_t at = 0; at < size; at += 1 << 16)
      copy_to_device(ctx_, buffer.data() + at, host.data(),
                     std::min<std::int64_t>(size - at, 1 << 16) * std::int64_t{sizeof(T)});
    ctx_.compute().synchronize();
    return buffer;
  }

  void measure_matmuls(DeviceRates& rates) {
    std::vector<MatmulCurve> columns, rows;
    std::vector<std::vector<std::pair<double, double>>> column_points(grid_.rows.size()),
        row_points(grid_.rows.size());
    for (const MatmulShape& shape : grid_.matmuls) {
      const std::int64_t bytes = shape.weight_bytes();
      std::vector<kernels::LinearWeight<T, D>> weights;
      for (std::int64_t at = 0; at < std::max(grid_.pool_bytes, bytes); at += bytes)
        weights.emplace_back(ctx_, filled(shape.out * shape.in), shape.out, shape.in);
      for (std::size_t i = 0; i < grid_.rows.size(); ++i) {
        const double flops = static_cast<double>(bytes) * grid_.rows[i];
        if (flops > 10 * grid_.body_flops) continue;  // in proportion to a smaller one
        const auto most =
            std::max<std::size_t>(1, static_cast<std::size_t>(grid_.body_flops / flops));
        const std::size_t ops = std::min(weights.size(), most);
        const double column_us = time_columns(weights, ops, grid_.rows[i]);
        const double row_us = time_rows(weights, ops, grid_.rows[i]);
        column_points[i].emplace_back(bytes, column_us);
        row_points[i].emplace_back(bytes, row_us);
        rates.read_gb_per_s =
            std::max(rates.read_gb_per_s, static_cast<double>(bytes) / column_us / 1e3);
        rates.matmul_tflops = std::max(rates.matmul_tflops, flops / column_us / 1e6);
      }
    }
    for (std::size_t i = 0; i < grid_.rows.size(); ++i) {
      columns.push_back({double(grid_.rows[i]), TimeCurve(column_points[i])});
      rows.push_back({double(grid_.rows[i]), TimeCurve(row_points[i])});
    }
    rates.column_matmul = MatmulTimes(std::move(columns));
    rates.row_matmul = MatmulTimes(std::move(rows));
  }

  double time_columns(const std::vector<kernels::LinearWeight<T, D>>& weights, std::size_t ops,
                      std::int64_t rows) {
    const std::int64_t out = weights[0].rows(), in = weights[0].cols();
    const Buffer<T, D> x = filled(rows * in), scratch(rows * out), y(rows * out / 2);
    kernels::GateUpArgs<T, D> args;
    args.x = TensorView<const T, D>(x.data(), rows, in);
    args.scratch = scratch.view(rows, out);
    args.out = y.view(rows, out / 2);
    return time_us(static_cast<double>(ops), [&] {
      for (std::size_t i = 0; i < ops; ++i) {
        args.weight = &weights[i];
        kernels::gate_up_act(ctx_, args);
      }
    });
  }

  double time_rows(const std::vector<kernels::LinearWeight<T, D>>& weights, std::size_t ops,
                   std::int64_t rows) {
    const std::int64_t out = weights[0].rows(), in = weights[0].cols();
    const Buffer<T, D> x = filled(rows * in), partial(rows * out), residual = filled(rows * out),
                       normed(rows * out);
    const Buffer<float, D> norm = ones(out);
    kernels::DeferredNorm<T, D> deferred;
    kernels::AddNormArgs<T, D> args;
    args.deferred = &deferred;  // as in a step: the matmul behind it would apply the norm
    args.residual = residual.view(rows, out);
    args.next_norm = {norm.data(), 1e-5f};
    args.normed = normed.view(rows, out);
    return time_us(static_cast<double>(ops), [&] {
      for (std::size_t i = 0; i < ops; ++i)
        parallel::project_reduce_add_norm(ctx_, parallel::TpGroup<D>{},
                                          TensorView<const T, D>(x.data(), rows, in), weights[i],
                                          partial.view(rows, out), args);
    });
  }

  Buffer<float, D> ones(std::int64_t size) {
    const std::vector<float> host(static_cast<std::size_t>(size), 1.0f);
    Buffer<float, D> buffer(size);
    copy_to_device(ctx_, buffer.data(), host.data(), buffer.size_bytes());
    ctx_.compute().synchronize();
    return buffer;
  }

  /// Residual and norm alone: three rows read, two written.
  void measure_elementwise(DeviceRates& rates) {
    constexpr std::int64_t kHidden = 1024, kOps = 16;
    const Buffer<float, D> norm = ones(kHidden);
    std::vector<std::pair<double, double>> points;
    for (const std::int64_t rows : {1, 64, 1024}) {
      const Buffer<T, D> branch = filled(rows * kHidden), residual = filled(rows * kHidden),
                         normed(rows * kHidden);
      kernels::AddNormArgs<T, D> args;
      args.branch = TensorView<const T, D>(branch.data(), rows, kHidden);
      args.residual = residual.view(rows, kHidden);
      args.next_norm = {norm.data(), 1e-5f};
      args.normed = normed.view(rows, kHidden);
      points.emplace_back(4 * rows * kHidden * std::int64_t{sizeof(T)}, time_us(kOps, [&] {
                            for (int i = 0; i < kOps; ++i) kernels::add_norm(ctx_, args);
                          }));
    }
    rates.elementwise = TimeCurve(std::move(points));
  }

  void measure_messages(comm::Communicator<D>& communicator, DeviceRates& rates) {
    constexpr int kOps = 32, kLargeOps = 4;
    std::vector<kernels::LinearWeight<T, D>> weights;
    if constexpr (std::is_same_v<D, Cpu>)
      for (int i = 0; i < kOps; ++i)
        weights.emplace_back(ctx_, filled(kWorkSize * kWorkSize), kWorkSize, kWorkSize);
    std::vector<std::pair<double, double>> points;
    for (const std::int64_t bytes : grid_.messages) {
      const int ops = bytes <= (64 << 10) ? kOps : kLargeOps;
      const Buffer<T, D> data = filled(bytes / std::int64_t{sizeof(T)});
      fill_zero(ctx_, data.data(), data.size_bytes());
      const auto sum = [&] { communicator.all_reduce_sum(ctx_, data.span()); };
      double us = time_us(ops, [&] {
        for (int i = 0; i < ops; ++i) sum();
      });
      if constexpr (std::is_same_v<D, Cpu>) us = std::max(us, time_behind_work(weights, ops, sum));
      points.emplace_back(bytes, us);
    }
    rates.all_reduce = TimeCurve(std::move(points));
  }

  /// What `sum` adds to matmuls that it is behind, as in a step: whoever is late there, as ranks on
  /// a host's cores are in turns, is waited for here.
  double time_behind_work(const std::vector<kernels::LinearWeight<T, D>>& weights, int ops,
                          const std::function<void()>& sum) {
    using Clock = std::chrono::steady_clock;
    const Buffer<T, D> x = filled(kWorkSize), y(kWorkSize);
    const auto seconds = [&](bool with_sums) {
      control_.barrier();
      const auto start = Clock::now();
      for (int i = 0; i < ops; ++i) {
        kernels::matmul<T, T>(ctx_, TensorView<const T, D>(x.data(), 1, kWorkSize),
                              weights[static_cast<std::size_t>(i)], y.view(1, kWorkSize));
        if (with_sums) sum();
      }
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    // In turns, because a host's other work comes and goes.
    std::vector<double> added;
    for (int run = 0; run < 2 * kRuns + 1; ++run) added.push_back(seconds(true) - seconds(false));
    std::sort(added.begin(), added.end());
    const double ns = added[added.size() / 2] / ops * 1e9;
    return static_cast<double>(control_.max(static_cast<std::int64_t>(ns))) / 1000;
  }

  Context<D>& ctx_;
  comm::ControlPlane& control_;
  const ProbeGrid grid_ = probe_grid(D{});
};

}  // namespace tandem::launch
