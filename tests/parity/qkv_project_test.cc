// SPDX-License-Identifier: Apache-2.0
#include "kernels/qkv_project.h"

#include <numeric>

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class QkvProject : public GpuTest {};

struct Case {
  int rows, q_heads, kv_heads, head_dim;
  std::int64_t hidden;
  bool bias, norms;
  int rotary_dim;
  bool joint = false;  ///< One norm over all heads, of which 3/4 are on other ranks.
};

/// Rows of two slots, one of them inert, over scattered chunks of a two-layer cache.
template <typename T>
void compare(const Case& c, bool skinny = false) {
  constexpr int kChunks = 12, kTableStride = 5, kMaxPosition = 320;
  auto& [cpu, cuda] = Devices::get();
  const std::string what = concat(name(dtype_of<T>), " rows ", c.rows, " heads ", c.q_heads, "/",
                                  c.kv_heads, " dim ", c.head_dim, " hidden ", c.hidden);
  const std::int64_t columns = (c.q_heads + 2 * c.kv_heads) * c.head_dim;
  const std::int64_t layer = std::int64_t{2} * c.kv_heads * kChunkTokens * c.head_dim;
  const MirrorWeight<T> weight(cpu, cuda, columns, c.hidden, 1);
  Mirror<T> x(cuda, normal<T>(c.rows * c.hidden, 1.0f, 2)), qkv(cuda, poison<T>(c.rows * columns)),
      cache(cuda, normal<T>(kChunks * 2 * layer, 1.0f, 3));
  Mirror<float> bias(cuda, normal<float>(columns, 1.0f, 4)),
      q_norm(cuda, normal<float>(c.q_heads * c.head_dim, 1.0f, 5)),
      k_norm(cuda, normal<float>(c.kv_heads * c.head_dim, 1.0f, 6)),
      squares(cuda, poison<float>(2 * c.rows)),
      cos(cuda, normal<float>(std::int64_t{kMaxPosition} * c.rotary_dim / 2, 0.7f, 7)),
      sin(cuda, normal<float>(std::int64_t{kMaxPosition} * c.rotary_dim / 2, 0.7f, 8));
  Mirror<std::int32_t> table(cuda, {7, 3, 11, 1, 5, 2, 9, 4, 10, 6});
  std::vector<std::int32_t> at, slot_of;
  for (int r = 0; r < c.rows; ++r) {
    at.push_back(r == 2 ? -1 : (r * 61 + 60) % kMaxPosition);
    slot_of.push_back(r % 2);
  }
  Mirror<std::int32_t> positions(cuda, at), slots(cuda, slot_of);
  const auto run = [&]<typename D>(Context<D>& ctx) {
    StepView<D> step;
    step.num_tokens = c.rows;
    step.num_decode = c.rows;
    step.positions = positions.on<D>();
    step.slots = slots.on<D>();
    QkvArgs<T, D> args;
    args.step = &step;
    args.x = x.template cview<D>(c.rows, c.hidden);
    args.weight = &weight.template on<D>();
    if (c.bias) args.bias = bias.on<D>();
    if (c.norms) {
      args.q_norm = {q_norm.on<D>(), 1e-6f};
      args.k_norm = {k_norm.on<D>(), 1e-5f};
    }
    if (c.rotary_dim > 0) args.rope = {cos.on<D>(), sin.on<D>(), c.rotary_dim};
    args.num_q_heads = c.q_heads;
    args.layer = 1;
    args.kv = {cache.template on<D>(), 2 * layer,   layer, c.kv_heads, c.head_dim,
               table.on<D>(),          kTableStride};
    args.qkv = qkv.template view<D>(c.rows, columns);
    if (!c.joint) return qkv_project(ctx, args);
    args.joint = {squares.on<D>(), 4 * c.q_heads * c.head_dim, 4 * c.kv_heads * c.head_dim, 1};
    qkv_project_squares(ctx, args);
    qkv_finish(ctx, args);
  };
  run(cpu);
  Devices::get().on_cuda(run, skinny);
  if (c.joint) expect_close(cuda, squares, 3 * kTolerance<T>, what + " squares");
  expect_close(cuda, cache, 3 * kTolerance<T>, what + " cache");
  // Of `qkv` the q columns of active rows are defined.
  auto got = download(cuda, qkv.device.data(), qkv.device.size());
  Mirror<T> q;
  std::vector<T> got_q;
  for (int r = 0; r < c.rows; ++r)
    for (std::int64_t i = 0; at[static_cast<std::size_t>(r)] >= 0 && i < c.q_heads * c.head_dim;
         ++i) {
      q.host.push_back(qkv.host[static_cast<std::size_t>(r * columns + i)]);
      got_q.push_back(got[static_cast<std::size_t>(r * columns + i)]);
    }
  q.device = upload(cuda, got_q);
  expect_close(cuda, q, 3 * kTolerance<T>, what + " q");
}

TEST_F(QkvProject, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    for (const int rows : {1, 2, 4, 8, 9, 21, 40, 64}) {
      compare<T>({rows, 9, 3, 64, 576, false, false, 64});
      compare<T>({rows, 4, 1, 128, 512, true, true, 128});
    }
    for (const int rows : {2, 5, 8}) compare<T>({rows, 9, 3, 64, 576, true, false, 64}, true);
    compare<T>({3, 5, 2, 80, 200, true, false, 32});
    compare<T>({5, 3, 3, 96, 104, false, true, 96});
    compare<T>({1, 2, 1, 256, 640, false, true, 256});
    compare<T>({7, 4, 2, 40, 72, true, false, 0});
    compare<T>({4, 32, 8, 128, 4096, false, false, 128});
    compare<T>({6, 5, 2, 64, 200, true, true, 64, true});
    compare<T>({1, 8, 1, 128, 512, false, true, 128, true});
    compare<T>({300, 4, 2, 128, 64, true, true, 128});
    compare<T>({300, 3, 1, 64, 64, false, false, 0});
  });
}

}  // namespace
}  // namespace tandem::kernels
