// SPDX-License-Identifier: Apache-2.0
// Prefill attention against a plain float reference (`attend_problem.h`). Two tests with exact
// answers (one visible key; one key selected by the query) say which token and which column was
// read when an operand is laid out wrongly.
#include <optional>

#include "kernels/device/host_buffer.h"
#include "parity/gpu.h"
#include "tests/parity/attend_problem.h"

namespace tandem::kernels {
namespace {

class AttendPrefill : public tandem::testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) made_.emplace(CudaOptions{});
  }
  Context<Cuda>& ctx() { return *made_; }

  template <typename T>
  void compare(const Case& spec, float tolerance) {
    Problem<T> problem(spec);
    problem.fill_random();
    const float scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
    const auto got = problem.run(ctx(), scale);
    EXPECT_EQ(describe(problem, got, problem.reference(scale), tolerance), "");
    expect_untouched(problem, got);
  }
  void compare_both(Case spec) {
    const std::string name = spec.name;
    spec.name = name + " bf16";
    compare<BFloat16>(spec, 0.01f);
    spec.name = name + " fp16";
    compare<Float16>(spec, 0.002f);
  }

 private:
  std::optional<Context<Cuda>> made_;
};

/// Only the row's own key is visible, so the output is its value, exactly.
TEST_F(AttendPrefill, OneVisibleKeyReturnsItsValue) {
  for (const int dim : {64, 128})
    for (const bool by_token : {true, false}) {
      Problem<BFloat16> problem(
          {.name = concat("window 1, d", dim, by_token ? ", value = position" : ", value = column"),
           .head_dim = dim,
           .kv_head_of_q = {0},
           .segments = {{0, 256}},
           .window = 1});
      const auto unit = [](int, int, int) { return 0.5f; };
      problem.fill(unit, unit,
                   [&](int p, int, int d) { return static_cast<float>(by_token ? p % 128 : d); });
      EXPECT_EQ(describe(problem, problem.run(ctx(), 0.1f), problem.reference(0.1f), 0.0f), "");
    }
}

/// A query points at one key among the last 64: the value says which key was found.
TEST_F(AttendPrefill, QuerySelectsOneKey) {
  for (const int dim : {64, 128})
    for (const int back : {0, 1, 17, 40, 63}) {
      Problem<BFloat16> problem(
          {.name = concat("select ", back, " back, d", dim, ", value = position"),
           .head_dim = dim,
           .kv_head_of_q = {0},
           .segments = {{64, 256}},
           .window = 64});
      problem.fill([&](int p, int, int d) { return (p - back) % dim == d ? 200.0f : 0.0f; },
                   [&](int p, int, int d) { return p % dim == d ? 1.0f : 0.0f; },
                   [](int p, int, int) { return static_cast<float>(p % 256); });
      EXPECT_EQ(describe(problem, problem.run(ctx(), 1.0f), problem.reference(1.0f), 0.0f), "");
    }
}

TEST_F(AttendPrefill, SegmentLengths) {
  for (const int rows : {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, 257, 1000})
    for (const int dim : {64, 128})
      compare_both({.name = concat(rows, " rows, d", dim),
                    .head_dim = dim,
                    .kv_head_of_q = grouped(4, 2),
                    .num_kv_heads = 2,
                    .segments = {{0, rows}}});
}

TEST_F(AttendPrefill, PriorContext) {
  for (const int prior : {1, 63, 64, 65, 127, 128, 129, 500, 2047})
    for (const int rows : {1, 64, 130, 300})
      compare_both({.name = concat(rows, " rows after ", prior),
                    .kv_head_of_q = grouped(2, 1),
                    .segments = {{prior, rows}}});
}

TEST_F(AttendPrefill, SlidingWindow) {
  for (const int window : {1, 2, 63, 64, 65, 100, 128, 129, 256, 300, 4096})
    for (const int prior : {0, 77, 640})
      compare_both({.name = concat("window ", window, " after ", prior),
                    .head_dim = window % 2 == 0 ? 128 : 64,
                    .kv_head_of_q = grouped(2, 1),
                    .segments = {{prior, 400}},
                    .window = window});
}

TEST_F(AttendPrefill, HeadMaps) {
  const std::vector<Segment> segments = {{0, 200}, {130, 70}};
  compare_both({.name = "9/3, first rank",
                .head_dim = 64,
                .kv_head_of_q = {0, 0, 0, 1, 1},
                .num_kv_heads = 2,
                .segments = segments});
  compare_both({.name = "9/3, second rank",
                .head_dim = 64,
                .kv_head_of_q = {0, 1, 1, 1},
                .num_kv_heads = 2,
                .segments = segments});
  compare_both(
      {.name = "32/8", .kv_head_of_q = grouped(32, 8), .num_kv_heads = 8, .segments = segments});
  compare_both({.name = "14/2",
                .head_dim = 64,
                .kv_head_of_q = grouped(14, 2),
                .num_kv_heads = 2,
                .segments = segments});
  compare_both({.name = "not ordered",
                .kv_head_of_q = {2, 0, 1, 0, 2},
                .num_kv_heads = 3,
                .segments = segments});
}

TEST_F(AttendPrefill, ManySegmentsBesideDecodeRows) {
  Case spec{.name = "many segments", .kv_head_of_q = grouped(4, 2), .num_kv_heads = 2};
  std::mt19937 random(7);
  for (int s = 0; s < 70; ++s)
    spec.segments.push_back(
        {static_cast<int>(random() % 300), 1 + static_cast<int>(random() % 200)});
  spec.segments[11] = {-1, 40};
  spec.segments[50] = {-1, 1};
  spec.num_decode = 5;
  spec.num_layers = 3;
  spec.layer = 1;
  spec.extra_columns = 512;
  compare_both(spec);
  spec.head_dim = 64;
  compare_both(spec);
}

/// More heads than one L2 section holds, so that the order of work restarts.
TEST_F(AttendPrefill, LongContextInSections) {
  compare_both({.name = "150 rows after 40000",
                .kv_head_of_q = grouped(6, 3),
                .num_kv_heads = 3,
                .segments = {{40000, 150}, {3, 300}}});
}

/// Few query tiles, many keys: blocks share the keys of a tile.
TEST_F(AttendPrefill, SplitKeys) {
  for (const int dim : {64, 128})
    for (const int rows : {1, 60, 128, 200})
      for (const int prior : {1000, 3000, 9001})
        compare_both({.name = concat("split, d", dim, ", ", rows, " rows after ", prior),
                      .head_dim = dim,
                      .kv_head_of_q = grouped(4, 2),
                      .num_kv_heads = 2,
                      .segments = {{prior, rows}, {-1, 3}, {2, 70}},
                      .num_decode = 2});
  compare_both({.name = "split window",
                .kv_head_of_q = grouped(2, 1),
                .segments = {{9001, 140}, {0, 10}},
                .window = 2500});
}

/// Keys and values in host memory arrive at the pace of the bus: all that attention takes longer
/// then is waiting for tiles.
TEST_F(AttendPrefill, CountsWaitsForTiles) {
  for (const Segment& segment : {Segment{256, 2048}, Segment{2048, 512}}) {
    Problem<BFloat16> problem(
        {.name = "waits", .kv_head_of_q = grouped(8, 8), .num_kv_heads = 8, .segments = {segment}});
    problem.fill_random();
    HostBuffer<BFloat16, Cuda> far(static_cast<std::int64_t>(problem.cache.size()));
    std::copy(problem.cache.begin(), problem.cache.end(), far.data());
    struct Run {
      std::vector<BFloat16> out;
      double ms = 0, waited_ms = 0;
    };
    const auto run = [&](BFloat16* cache) {
      Buffer<TileWaits, Cuda> counted(1);
      fill_zero(ctx(), counted.data(), counted.size_bytes());
      Run result{problem.run(ctx(), 0.09f, counted.data(), cache), problem.milliseconds};
      TileWaits waits;
      copy_to_host(ctx(), &waits, counted.data(), sizeof waits);
      ctx().compute().synchronize();
      EXPECT_GT(waits.total, 0u);
      result.waited_ms = result.ms * static_cast<double>(waits.query + waits.key + waits.value) /
                         static_cast<double>(waits.total);
      return result;
    };
    run(nullptr);
    const Run near = run(nullptr), slow = run(far.data());
    const auto plain = problem.run(ctx(), 0.09f);
    std::printf("%d rows after %d: %.3f ms, %.3f of them waiting; from the host %.3f and %.3f\n",
                segment.rows, segment.prior, near.ms, near.waited_ms, slow.ms, slow.waited_ms);
    ASSERT_GT(slow.ms, 2 * near.ms) << "there is nothing to see";
    EXPECT_LT(near.waited_ms, 0.7 * near.ms);
    EXPECT_NEAR(slow.waited_ms - near.waited_ms, slow.ms - near.ms, 0.1 * (slow.ms - near.ms));
    for (std::size_t e = 0; e < plain.size(); ++e) {
      ASSERT_EQ(near.out[e].bits, plain[e].bits) << e;
      ASSERT_EQ(slow.out[e].bits, plain[e].bits) << e;
    }
  }
}

TEST_F(AttendPrefill, SameBitsEveryTime) {
  Problem<BFloat16> problem({.name = "repeat",
                             .kv_head_of_q = grouped(8, 2),
                             .num_kv_heads = 2,
                             .segments = {{0, 700}, {321, 333}}});
  problem.fill_random();
  const auto once = problem.run(ctx(), 0.09f);
  for (int i = 0; i < 5; ++i) {
    const auto again = problem.run(ctx(), 0.09f);
    for (std::size_t e = 0; e < once.size(); ++e)
      ASSERT_EQ(once[e].bits, again[e].bits) << "element " << e << " of run " << i;
  }
}

}  // namespace
}  // namespace tandem::kernels
