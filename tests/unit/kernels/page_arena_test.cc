// SPDX-License-Identifier: Apache-2.0
// Pieces of an arena: aligned, zero, apart from each other, and alive without the arena.
#include "kernels/device/cpu/page_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace tandem {
namespace {

TEST(PageArena, PiecesAreAlignedZeroAndApart) {
  PageArena arena;
  const std::vector<std::size_t> sizes{1, 256, 257, 5 << 20, (64 << 20) - 4096, (70 << 20) + 1, 3};
  std::vector<std::shared_ptr<std::byte>> pieces;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pieces.push_back(arena.take(sizes[i]));
    std::byte* begin = pieces.back().get();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % 256, 0u);
    EXPECT_TRUE(std::all_of(begin, begin + sizes[i], [](std::byte b) { return b == std::byte{}; }));
    std::memset(begin, static_cast<int>(i + 1), sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i)
    EXPECT_TRUE(std::all_of(pieces[i].get(), pieces[i].get() + sizes[i],
                            [&](std::byte b) { return b == std::byte(i + 1); }))
        << "piece " << i;
}

TEST(PageArena, PiecesOutliveIt) {
  std::optional<PageArena> arena(std::in_place);
  const auto first = arena->take(100), second = arena->take(100);
  arena.reset();
  std::memset(first.get(), 1, 100);
  EXPECT_EQ(second.get()[99], std::byte{});
}

}  // namespace
}  // namespace tandem
