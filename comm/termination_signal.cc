// SPDX-License-Identifier: Apache-2.0
#include "comm/termination_signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

/// A handler gets no argument of ours, so the descriptor it writes to is the process's.
std::atomic<int> handler_descriptor{-1};

void note_signal(int) {
  const int before = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(handler_descriptor.load(), &one, sizeof one);
  errno = before;
}

bool handler_is(void (*handler)(int)) {
  struct sigaction now {};
  return ::sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == handler;
}

}  // namespace

TerminationSignal::TerminationSignal() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TANDEM_ASSERT(event_, "eventfd");
  if (!handler_is(SIG_DFL)) return;
  handler_descriptor = event_.descriptor();
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
}

TerminationSignal::~TerminationSignal() {
  if (handler_is(note_signal)) ::signal(SIGTERM, SIG_DFL);
  handler_descriptor = -1;
}

bool TerminationSignal::take() {
  std::uint64_t count = 0;
  return ::read(event_.descriptor(), &count, sizeof count) == sizeof count;
}

}  // namespace tandem::comm
