// SPDX-License-Identifier: Apache-2.0
// NCCL in the memory synchronization domain bench: all-reduces between two GPUs of one process, as
// aggressor on the lab's stream and as victim on the comm stream. NCCL launches its kernels in the
// logical remote domain; which physical one that is comes from the map of the stream it is given.
#pragma once

#include <memory>

#include "launch/bench/domains_cuda/domains_lab.h"

namespace tandem::bench {

class NcclPair {
 public:
  /// Null without a second GPU. GPU 0 stays current.
  static std::unique_ptr<NcclPair> make(Context<Cuda>& ctx);
  virtual ~NcclPair() = default;

  virtual Aggressor aggressor() = 0;
  virtual Victim victim() = 0;
};

}  // namespace tandem::bench
