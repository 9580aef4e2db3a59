// SPDX-License-Identifier: Apache-2.0
// How a matmul of decode shares out W: equal numbers of units to the blocks, neighbours together,
// so that all SMs end at once. Divided on the host: a block has no time for it.
#pragma once

namespace tandem::kernels {

struct BlockShare {
  int each = 0, more = 0;  ///< Units of a block; the first `more` blocks have one more.

  BlockShare() = default;
  BlockShare(int units, int blocks) : each(units / blocks), more(units % blocks) {}
  int most() const { return each + (more > 0 ? 1 : 0); }
#ifdef __CUDACC__
  __device__ int begin(int block) const { return block * each + min(block, more); }
  __device__ int end(int block) const { return begin(block) + each + (block < more ? 1 : 0); }
#endif
};

}  // namespace tandem::kernels
