// SPDX-License-Identifier: Apache-2.0
// Slot state on both devices, for tests of the step and of sampling.
#pragma once

#include "kernels/step.h"
#include "parity/mirror.h"

namespace tandem::testing {

struct Slots {
  static constexpr int kTableStride = 3;
  int num_slots, history_stride;
  Mirror<std::int32_t> last_token, length, table, history;
  Mirror<std::uint8_t> done;
  Mirror<kernels::SlotParams> params;

  Slots(Context<Cuda>& ctx, int slots, int stride)
      : num_slots(slots),
        history_stride(stride),
        last_token(ctx, std::vector<std::int32_t>(count(slots), 3)),
        length(ctx, std::vector<std::int32_t>(count(slots), 4)),
        table(ctx, std::vector<std::int32_t>(count(slots * kTableStride), -5)),
        history(ctx, std::vector<std::int32_t>(count(slots * stride), -6)),
        done(ctx, std::vector<std::uint8_t>(count(slots), 0)),
        params(ctx, std::vector<kernels::SlotParams>(count(slots))) {}

  void set(Context<Cuda>& ctx, int slot, std::int32_t token, std::int32_t tokens, bool is_done) {
    last_token.host[count(slot)] = token;
    length.host[count(slot)] = tokens;
    done.host[count(slot)] = is_done ? 1 : 0;
    upload_all(ctx);
  }
  void upload_all(Context<Cuda>& ctx) {
    last_token.device = upload(ctx, last_token.host);
    length.device = upload(ctx, length.host);
    done.device = upload(ctx, done.host);
    history.device = upload(ctx, history.host);
    params.device = upload(ctx, params.host);
  }

  template <Device D>
  kernels::SlotView<D> view() {
    kernels::SlotView<D> slots;
    slots.num_slots = num_slots;
    slots.last_token = last_token.on<D>();
    slots.length = length.on<D>();
    slots.done = done.on<D>();
    slots.params = params.on<D>();
    slots.chunk_table = table.on<D>();
    slots.table_stride = kTableStride;
    slots.history = history.on<D>();
    slots.history_stride = history_stride;
    return slots;
  }

  void expect_same(Context<Cuda>& ctx) {
    expect_equal(ctx, last_token, "last token");
    expect_equal(ctx, length, "length");
    expect_equal(ctx, table, "chunk table");
    expect_equal(ctx, history, "history");
    expect_equal(ctx, done, "done");
    const auto got = download(ctx, params.device.data(), params.device.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].seed, params.host[i].seed) << "slot " << i;
      EXPECT_EQ(got[i].top_k, params.host[i].top_k) << "slot " << i;
    }
  }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
};

}  // namespace tandem::testing
