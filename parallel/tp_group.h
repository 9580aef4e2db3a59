// SPDX-License-Identifier: Apache-2.0
// The ranks that share one model. A layer is given its group; none asks for a global rank.
#pragma once

#include "comm/communicator.h"
#include "comm/row_exchange.h"

namespace tandem::parallel {

/// View: what it points to outlives the group. Null communicator: one rank alone.
template <Device D>
struct TpGroup {
  int rank = 0;
  int size = 1;
  comm::Communicator<D>* communicator = nullptr;
  comm::RowExchange<D>* rows = nullptr;  ///< For overlapped halves; null: all-reduces.
  comm::Progress* progress = nullptr;    ///< Where stages are published; null: nobody watches.
};

}  // namespace tandem::parallel
