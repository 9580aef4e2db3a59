// SPDX-License-Identifier: Apache-2.0
// `attend` on both devices: decode rows and prefill segments of one step, over a cache whose chunks
// are scattered and full of NaN where no token was written.
#include "kernels/attend.h"

#include <numeric>

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class Attend : public GpuTest {};

struct Case {
  int head_dim;
  std::vector<std::int32_t> kv_head_of_q;
  std::vector<int> decode;                    ///< Position of each row; negative: inert.
  std::vector<std::pair<int, int>> segments;  ///< Tokens in the cache before, rows.
  int window = 0;
  float softcap = 0.0f;
  int extra_kv_bound = 0;  ///< How far the host's bound is above the longest row.
};

template <typename T>
class Problem {
 public:
  explicit Problem(const Case& c) : spec_(c) {
    auto& cuda = Devices::get().cuda;
    q_heads_ = static_cast<int>(c.kv_head_of_q.size());
    kv_heads_ = 1 + *std::max_element(c.kv_head_of_q.begin(), c.kv_head_of_q.end());
    std::vector<std::int32_t> positions, slots, begin;
    std::vector<int> lengths;
    for (const int position : c.decode) {
      positions.push_back(position);
      slots.push_back(static_cast<std::int32_t>(lengths.size()));
      lengths.push_back(position + 1);
    }
    for (const auto& [prior, rows] : c.segments) {
      begin.push_back(static_cast<std::int32_t>(positions.size()));
      max_segment_ = std::max(max_segment_, rows);
      for (int r = 0; r < rows; ++r) {
        positions.push_back(prior + r);
        slots.push_back(static_cast<std::int32_t>(lengths.size()));
      }
      lengths.push_back(prior + rows);
    }
    begin.push_back(static_cast<std::int32_t>(positions.size()));
    rows_ = static_cast<std::int32_t>(positions.size());
    longest_ = *std::max_element(lengths.begin(), lengths.end());
    stride_ = longest_ / kChunkTokens + 2;
    fill_cache(lengths);
    positions_ = {cuda, positions};
    slots_ = {cuda, slots};
    begin_ = {cuda, begin};
    map_ = {cuda, c.kv_head_of_q};
    columns_ = q_heads_ * c.head_dim;
    q_ = {cuda, normal<T>(std::int64_t{rows_} * (columns_ + 64), 1.0f, 11)};
    out_ = {cuda, poison<T>(std::int64_t{rows_} * columns_)};
  }

  void compare(const std::string& what) {
    auto& [cpu, cuda] = Devices::get();
    run(cpu);
    run(cuda);
    expect_close(cuda, out_, kTolerance<T>, what);
    const auto first = download(cuda, out_.device.data(), out_.device.size());
    run(cuda);
    const auto second = download(cuda, out_.device.data(), out_.device.size());
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(T)), 0)
        << what << ": a second run differs";
  }

 private:
  void fill_cache(const std::vector<int>& lengths) {
    auto& cuda = Devices::get().cuda;
    std::vector<std::int32_t> table(lengths.size() * static_cast<std::size_t>(stride_), 0);
    std::vector<std::int32_t> numbers(table.size());
    std::iota(numbers.begin(), numbers.end(), 1);
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937(5));
    const std::int64_t head = std::int64_t{kChunkTokens} * spec_.head_dim;
    chunk_ = 2 * kv_heads_ * head;  // one layer
    std::int64_t used = 1;
    for (const int length : lengths) used += (length + kChunkTokens - 1) / kChunkTokens;
    std::vector<T> cache(static_cast<std::size_t>(used * chunk_),
                         T(std::numeric_limits<float>::quiet_NaN()));
    const auto values = normal<T>(1 << 20, 1.0f, 12);
    std::erase_if(numbers, [&](std::int32_t n) { return n >= used; });
    std::size_t next = 0, draw = 0;
    for (std::size_t slot = 0; slot < lengths.size(); ++slot)
      for (int begin = 0; begin < lengths[slot]; begin += kChunkTokens) {
        const std::int32_t chunk = numbers[next++];
        table[slot * static_cast<std::size_t>(stride_) +
              static_cast<std::size_t>(begin / kChunkTokens)] = chunk;
        const int tokens = std::min(kChunkTokens, lengths[slot] - begin);
        for (std::int64_t plane = 0; plane < 2 * kv_heads_; ++plane)
          for (int i = 0; i < tokens * spec_.head_dim; ++i)
            cache[static_cast<std::size_t>(chunk * chunk_ + plane * head + i)] =
                values[draw++ % values.size()];
      }
    table_ = {cuda, table};
    cache_ = {cuda, cache};
  }

  template <Device D>
  void run(Context<D>& ctx) {
    StepView<D> step;
    step.num_tokens = rows_;
    step.num_decode = static_cast<std::int32_t>(spec_.decode.size());
    step.num_segments = static_cast<std::int32_t>(spec_.segments.size());
    step.max_segment_tokens = max_segment_;
    step.max_kv_tokens = longest_ + spec_.extra_kv_bound;
    step.positions = positions_.on<D>();
    step.slots = slots_.on<D>();
    step.segment_begin = begin_.on<D>();
    AttendArgs<T, D> args;
    args.step = &step;
    args.q = q_.template cview<D>(rows_, columns_, columns_ + 64);
    args.kv = {cache_.template on<D>(), chunk_,         chunk_, kv_heads_,
               spec_.head_dim,          table_.on<D>(), stride_};
    args.kv_head_of_q = map_.on<D>();
    args.num_q_heads = q_heads_;
    args.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
    args.softcap = spec_.softcap;
    args.window = spec_.window;
    args.out = out_.template view<D>(rows_, columns_);
    attend(ctx, args);
  }

  Case spec_;
  std::int32_t q_heads_ = 0, kv_heads_ = 0, rows_ = 0, longest_ = 0, stride_ = 0, max_segment_ = 0;
  std::int64_t chunk_ = 0, columns_ = 0;
  Mirror<T> q_, cache_, out_;
  Mirror<std::int32_t> positions_, slots_, begin_, map_, table_;
};

void compare_types(const Case& c, const std::string& what) {
  for_each_type([&]<typename T>() {
    Problem<T>(c).compare(concat(name(dtype_of<T>), " dim ", c.head_dim, " ", what));
  });
}

std::vector<std::int32_t> grouped(int q_heads, int kv_heads) {
  std::vector<std::int32_t> map;
  for (int h = 0; h < q_heads; ++h) map.push_back(h * kv_heads / q_heads);
  return map;
}

constexpr int kHeadDims[] = {64, 80, 96, 128, 256, 40};

TEST_F(Attend, DecodeOfRaggedLengths) {
  for (const int dim : kHeadDims)
    compare_types({dim, grouped(8, 2), {0, 14, 15, 63, 64, -1, 200, 1000}, {}}, "ragged decode");
}

TEST_F(Attend, OneLongRowIsSplit) {
  for (const int dim : {64, 128})
    for (const int bound : {0, 60000})
      compare_types({dim, grouped(4, 1), {5003}, {}, 0, 0.0f, bound}, concat("bound +", bound));
}

TEST_F(Attend, LongRowsAreSharedByClusters) {
  for (const int dim : {64, 128})
    compare_types({dim, grouped(4, 1), {20000, 40}, {}, 0, 0.0f, 40000}, "long and short");
  std::vector<int> positions(70, 90);
  positions[31] = 4500;
  positions[50] = 9000;
  compare_types({64, grouped(4, 2), positions, {}}, "two long rows among 70");
  compare_types({64, grouped(4, 2), positions, {}, 5000}, "two long rows among 70, window");
}

TEST_F(Attend, ManyRows) {
  std::vector<int> positions;
  for (int i = 0; i < 70; ++i) positions.push_back(i % 9 == 4 ? -1 : i * 7 % 300);
  compare_types({64, grouped(9, 3), positions, {}}, "70 rows");
  compare_types({128, grouped(4, 2), positions, {}}, "70 rows");
}

TEST_F(Attend, OddHeadMaps) {
  compare_types({64, {0, 0, 0, 1, 1, 2}, {100, 3}, {{0, 20}}}, "uneven groups");
  compare_types({64, {2, 0, 1, 0, 2}, {130}, {{70, 9}}}, "unordered map");
  compare_types({128, grouped(40, 2), {130, 64}, {}}, "groups of 20");
  compare_types({256, grouped(22, 2), {130, 64, 1100}, {}}, "groups of 11, wide");
  compare_types({64, grouped(9, 1), {130, 64, 1100}, {}}, "group of 9");
  compare_types({80, grouped(3, 3), {77}, {{0, 5}}}, "no groups");
}

TEST_F(Attend, WindowAndSoftcap) {
  for (const int window : {1, 16, 64, 100})
    compare_types({64, grouped(4, 2), {0, 63, 64, 99, 100, 500}, {{0, 130}, {90, 70}}, window},
                  concat("window ", window));
  compare_types({128, grouped(4, 2), {5, 300}, {{0, 70}}, 0, 20.0f}, "softcap");
  compare_types({256, grouped(4, 2), {5, 300}, {{30, 70}}, 128, 50.0f}, "window and softcap");
}

TEST_F(Attend, PrefillFromAnyPosition) {
  for (const int dim : kHeadDims)
    compare_types({dim, grouped(4, 2), {}, {{0, 1}, {0, 64}, {63, 65}, {64, 3}, {200, 130}}},
                  "prefill");
}

TEST_F(Attend, MixedStep) {
  for (const int dim : {64, 128})
    compare_types({dim, grouped(8, 2), {10, 700, -1}, {{0, 100}, {300, 33}}}, "mixed");
}

}  // namespace
}  // namespace tandem::kernels
