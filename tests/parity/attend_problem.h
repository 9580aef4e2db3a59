// SPDX-License-Identifier: Apache-2.0
// One step of attention on the host, for tests: segments over a paged cache whose chunks are
// scattered and filled with NaN before the valid tokens are written, outputs poisoned, a plain
// float reference, and a description of where wrong values sit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/attend_prefill.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels {

struct Segment {
  int prior;  ///< Tokens in the cache before; negative: an inert segment.
  int rows;
};

struct Case {
  std::string name = {};
  int head_dim = 128;
  std::vector<std::int32_t> kv_head_of_q = {};
  int num_kv_heads = 1;
  std::vector<Segment> segments = {};
  int num_decode = 0;
  int window = 0;
  int num_layers = 1;
  int layer = 0;
  int extra_columns = 0;  ///< Of a row of q, past the heads.
};

inline std::vector<std::int32_t> grouped(int q_heads, int kv_heads) {
  std::vector<std::int32_t> map;
  for (int h = 0; h < q_heads; ++h) map.push_back(h * kv_heads / q_heads);
  return map;
}

template <typename T>
Buffer<T, Cuda> upload(Context<Cuda>& ctx, const std::vector<T>& host) {
  Buffer<T, Cuda> device(static_cast<std::int64_t>(host.size()));
  copy_to_device(ctx, device.data(), host.data(), device.size_bytes());
  return device;
}

/// One step on the host, with the rules of `step_view.h`.
template <typename T>
struct Problem {
  using Fill = std::function<float(int position, int head, int dim)>;

  explicit Problem(const Case& c) : spec(c), random(1234) {
    q_heads = static_cast<int>(c.kv_head_of_q.size());
    rows = c.num_decode;
    int chunks = 1;  // chunk 0 is nobody's
    for (const Segment& segment : c.segments) {
      segment_begin.push_back(rows);
      rows += segment.rows;
      table_stride = std::max(table_stride, chunks_of(segment) + 1);
      chunks += chunks_of(segment);
    }
    segment_begin.push_back(rows);
    chunk_stride = std::int64_t{c.num_layers} * layer_stride();
    cache.assign(static_cast<std::size_t>(chunks * chunk_stride), T(kNaN));
    q_stride = q_heads * c.head_dim + c.extra_columns;
    q.assign(static_cast<std::size_t>(rows * q_stride), T(kNaN));
    positions.assign(static_cast<std::size_t>(rows), -1);
    slots.assign(static_cast<std::size_t>(rows), 0);
    assign_chunks(chunks);
  }

  int chunks_of(const Segment& s) const {
    return s.prior < 0 ? 0 : (s.prior + s.rows + kChunkTokens - 1) / kChunkTokens;
  }
  std::int64_t head_stride() const { return std::int64_t{kChunkTokens} * spec.head_dim; }
  std::int64_t layer_stride() const { return 2 * spec.num_kv_heads * head_stride(); }

  /// Scattered chunk numbers; entries past a sequence's end name a chunk far outside the cache.
  void assign_chunks(int chunks) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(chunks - 1));
    std::iota(numbers.begin(), numbers.end(), 1);
    std::shuffle(numbers.begin(), numbers.end(), random);
    table.assign(spec.segments.size() * static_cast<std::size_t>(table_stride), 1 << 20);
    std::size_t next = 0;
    for (std::size_t s = 0; s < spec.segments.size(); ++s) {
      const Segment& segment = spec.segments[s];
      const std::size_t slot = slot_of(s);
      for (int i = 0; i < chunks_of(segment); ++i)
        table[slot * static_cast<std::size_t>(table_stride) + static_cast<std::size_t>(i)] =
            numbers[next++];
      for (int r = 0; r < segment.rows; ++r) {
        const auto row = static_cast<std::size_t>(segment_begin[s] + r);
        positions[row] = segment.prior < 0 ? -1 : segment.prior + r;
        slots[row] = static_cast<std::int32_t>(slot);
      }
    }
  }
  std::size_t slot_of(std::size_t segment) const { return spec.segments.size() - 1 - segment; }

  T* cached(int slot, int position, int value, int head) {
    const std::int64_t chunk = table[static_cast<std::size_t>(slot * table_stride + position / 64)];
    return cache.data() + chunk * chunk_stride + spec.layer * layer_stride() +
           (value * spec.num_kv_heads + head) * head_stride() + position % 64 * spec.head_dim;
  }

  void fill(const Fill& query, const Fill& key, const Fill& value) {
    for (std::size_t s = 0; s < spec.segments.size(); ++s) {
      const Segment& segment = spec.segments[s];
      for (int p = 0; segment.prior >= 0 && p < segment.prior + segment.rows; ++p)
        for (int h = 0; h < spec.num_kv_heads; ++h)
          for (int d = 0; d < spec.head_dim; ++d) {
            cached(static_cast<int>(slot_of(s)), p, 0, h)[d] = T(key(p, h, d));
            cached(static_cast<int>(slot_of(s)), p, 1, h)[d] = T(value(p, h, d));
          }
    }
    for (int r = spec.num_decode; r < rows; ++r)
      for (int h = 0; h < q_heads; ++h)
        for (int d = 0; d < spec.head_dim; ++d)
          q[static_cast<std::size_t>(r * q_stride + h * spec.head_dim + d)] =
              T(query(positions[static_cast<std::size_t>(r)], h, d));
  }
  void fill_random() {
    std::normal_distribution<float> normal;
    const Fill any = [&](int, int, int) { return normal(random); };
    fill(any, any, any);
  }

  /// `waits`: counted there. `cache_at`: the cache's bytes, somewhere that the GPU can read.
  std::vector<T> run(Context<Cuda>& ctx, float scale, TileWaits* waits = nullptr,
                     T* cache_at = nullptr) const {
    const auto d_q = upload(ctx, q), d_cache = upload(ctx, cache);
    const auto d_positions = upload(ctx, positions), d_slots = upload(ctx, slots),
               d_segments = upload(ctx, segment_begin), d_table = upload(ctx, table),
               d_map = upload(ctx, spec.kv_head_of_q);
    const std::int64_t columns = std::int64_t{q_heads} * spec.head_dim;
    std::vector<T> out(static_cast<std::size_t>((rows + 1) * columns), T(kPoison));
    auto d_out = upload(ctx, out);
    StepView<Cuda> step;
    step.num_tokens = rows;
    step.num_decode = spec.num_decode;
    step.num_segments = static_cast<std::int32_t>(spec.segments.size());
    for (const Segment& s : spec.segments) {
      step.max_segment_tokens = std::max(step.max_segment_tokens, s.rows);
      step.max_kv_tokens = std::max(step.max_kv_tokens, s.prior + s.rows);
    }
    step.positions = d_positions.data();
    step.slots = d_slots.data();
    step.segment_begin = d_segments.data();
    AttendArgs<T, Cuda> args;
    args.step = &step;
    args.q = TensorView<const T, Cuda>(d_q.data(), rows, columns);
    args.q.stride = q_stride;
    args.kv = {cache_at == nullptr ? d_cache.data() : cache_at,
               chunk_stride,
               layer_stride(),
               spec.num_kv_heads,
               spec.head_dim,
               d_table.data(),
               table_stride};
    args.kv_head_of_q = d_map.data();
    args.num_q_heads = q_heads;
    args.layer = spec.layer;
    args.scale = scale;
    args.window = spec.window;
    args.out = TensorView<T, Cuda>(d_out.data(), rows, columns);
    EXPECT_TRUE(attend_prefill_supported(args));
    Event<Cuda> begin(true), end(true);
    begin.record(ctx.compute());
    attend_prefill(ctx, args, waits);
    end.record(ctx.compute());
    copy_to_host(ctx, out.data(), d_out.data(), d_out.size_bytes());
    ctx.compute().synchronize();
    milliseconds = static_cast<double>(end.milliseconds_since(begin));
    return out;
  }

  /// [rows, q_heads, head_dim] in float, by definition.
  std::vector<float> reference(float scale) {
    const int dim = spec.head_dim;
    std::vector<float> out(static_cast<std::size_t>(rows * q_heads * dim), 0.0f);
#pragma omp parallel for schedule(dynamic, 8)
    for (int i = spec.num_decode * q_heads; i < rows * q_heads; ++i) {
      const int row = i / q_heads, head = i % q_heads;
      const int position = positions[static_cast<std::size_t>(row)];
      const int slot = slots[static_cast<std::size_t>(row)];
      const int kv_head = spec.kv_head_of_q[static_cast<std::size_t>(head)];
      if (position < 0) continue;
      const T* query = q.data() + row * q_stride + head * dim;
      const int first = spec.window > 0 ? std::max(0, position + 1 - spec.window) : 0;
      std::vector<float> weights;
      for (int p = first; p <= position; ++p) {
        const T* key = cached(slot, p, 0, kv_head);
        float score = 0;
        for (int d = 0; d < dim; ++d) score += float(query[d]) * float(key[d]);
        weights.push_back(score * scale);
      }
      const float maximum = *std::max_element(weights.begin(), weights.end());
      float sum = 0;
      for (float& w : weights) sum += w = std::exp(w - maximum);
      for (int p = first; p <= position; ++p) {
        const T* value = cached(slot, p, 1, kv_head);
        const float weight = weights[static_cast<std::size_t>(p - first)] / sum;
        for (int d = 0; d < dim; ++d)
          out[static_cast<std::size_t>(i * dim + d)] += weight * float(value[d]);
      }
    }
    return out;
  }

  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kPoison = 768.0f;  ///< Exact in 16 bits.
  mutable double milliseconds = 0;          ///< That the kernels of the last run took.
  Case spec;
  std::mt19937 random;
  int q_heads = 0, rows = 0, table_stride = 0;
  std::int64_t chunk_stride = 0, q_stride = 0;
  std::vector<std::int32_t> segment_begin, positions, slots, table;
  std::vector<T> cache, q;
};

/// Where wrong values sit, told by head, segment, row of its tile and block of 8 columns.
template <typename T>
std::string describe(const Problem<T>& problem, const std::vector<T>& got,
                     const std::vector<float>& want, float tolerance) {
  const int dim = problem.spec.head_dim;
  std::map<int, int> by_head, by_segment, by_row, by_block;
  int wrong = 0, nan = 0, poison = 0;
  std::ostringstream first;
  for (int row = problem.spec.num_decode; row < problem.rows; ++row)
    for (int h = 0; h < problem.q_heads; ++h)
      for (int d = 0; d < dim; ++d) {
        const auto i = static_cast<std::size_t>((row * problem.q_heads + h) * dim + d);
        const float value = got[i], expected = want[i];
        if (std::abs(value - expected) <= tolerance * (1 + std::abs(expected))) continue;
        int segment = 0;
        while (problem.segment_begin[static_cast<std::size_t>(segment) + 1] <= row) ++segment;
        const int in_segment = row - problem.segment_begin[static_cast<std::size_t>(segment)];
        ++by_head[h], ++by_segment[segment], ++by_row[in_segment % 128], ++by_block[d / 8];
        nan += std::isnan(value), poison += value == Problem<T>::kPoison;
        if (wrong++ < 24)
          first << "\n  segment " << segment << " row " << in_segment << " position "
                << problem.positions[static_cast<std::size_t>(row)] << " head " << h << " column "
                << d << ": got " << value << " want " << expected;
      }
  if (wrong == 0) return "";
  const auto list = [](const char* what, const std::map<int, int>& counts) {
    std::ostringstream text;
    text << "\n  by " << what << " (" << counts.size() << "):";
    int shown = 0;
    for (const auto& [key, count] : counts)
      if (shown++ < 140) text << ' ' << key << ':' << count;
    return text.str();
  };
  std::ostringstream text;
  text << problem.spec.name << ": " << wrong << " of "
       << (problem.rows - problem.spec.num_decode) * problem.q_heads * dim << " wrong, " << nan
       << " NaN, " << poison << " never written" << list("head", by_head)
       << list("segment", by_segment) << list("row % 128", by_row) << list("column / 8", by_block)
       << first.str();
  return text.str();
}

template <typename T>
void expect_untouched(const Problem<T>& problem, const std::vector<T>& got) {
  const std::size_t columns = static_cast<std::size_t>(problem.q_heads * problem.spec.head_dim);
  for (std::size_t i = 0; i < columns; ++i)
    ASSERT_EQ(float(got[static_cast<std::size_t>(problem.rows) * columns + i]), Problem<T>::kPoison)
        << problem.spec.name << ": a row past the last token was written, column " << i;
  for (std::size_t i = 0; i < columns * static_cast<std::size_t>(problem.spec.num_decode); ++i)
    ASSERT_EQ(float(got[i]), Problem<T>::kPoison)
        << problem.spec.name << ": a decode row was written, element " << i;
}

}  // namespace tandem::kernels
