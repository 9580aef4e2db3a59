// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_rows.h"

#include "parity/mirror.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class GatherRows : public GpuTest {};

TEST_F(GatherRows, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    auto& [cpu, cuda] = Devices::get();
    for (const std::int64_t cols : {7, 576, 4096}) {
      Mirror<T> from(cuda, normal<T>(9 * cols, 1.0f, 2)), out(cuda, poison<T>(4 * cols));
      Mirror<std::int32_t> rows(cuda, {8, 0, 3, 3});
      const auto run = [&]<typename D>(Context<D>& ctx) {
        gather_rows<T>(
            ctx, {rows.on<D>(), from.template cview<D>(9, cols), out.template view<D>(4, cols)});
      };
      run(cpu);
      run(cuda);
      expect_equal(cuda, out, concat(name(dtype_of<T>), " ", cols));
    }
  });
}

}  // namespace
}  // namespace tandem::kernels
