// SPDX-License-Identifier: Apache-2.0
// SIGTERM as a readable descriptor. A launcher that saw one rank die sends it to the others, which
// then have a moment to tell what they know. Takes the signal only where nobody else handles or
// ignores it, and gives it back. One object per process at a time, because a signal's handler
// belongs to the process; any thread may look at the descriptor.
#pragma once

#include "comm/socket.h"

namespace tandem::comm {

class TerminationSignal {
 public:
  TerminationSignal();
  TerminationSignal(const TerminationSignal&) = delete;
  TerminationSignal& operator=(const TerminationSignal&) = delete;
  ~TerminationSignal();

  /// Becomes readable when the signal comes.
  int descriptor() const { return event_.descriptor(); }
  /// True once for every time the signal came since the last call, several at once counting as one.
  bool take();

 private:
  Socket event_;
};

}  // namespace tandem::comm
