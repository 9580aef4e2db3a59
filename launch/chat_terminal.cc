// SPDX-License-Identifier: Apache-2.0
#include "launch/chat_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

constexpr char kInterrupt = '\x03';  // what Ctrl-C sends

/// The terminal that the launcher reads and passes on, or "".
std::string launcher_terminal() {
  std::error_code ignored;
  const std::filesystem::path input =
      std::filesystem::read_symlink(concat("/proc/", ::getppid(), "/fd/0"), ignored);
  const std::string name = input.string();
  return name.starts_with("/dev/pts/") || name.starts_with("/dev/tty") ? name : std::string();
}

/// Changes a terminal although this process may be in the background of it (under mpirun).
void set_terminal(int terminal, const termios& settings) {
  sigset_t background, before;
  ::sigemptyset(&background);
  ::sigaddset(&background, SIGTTOU);
  ::pthread_sigmask(SIG_BLOCK, &background, &before);
  ::tcsetattr(terminal, TCSANOW, &settings);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

ChatTerminal::ChatTerminal() {
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  TANDEM_ASSERT(wake_ >= 0, "eventfd failed");
  open_terminal();
  thread_ = std::thread([this] { read_input(); });
}

ChatTerminal::~ChatTerminal() {
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof(one));
  thread_.join();
  ::close(wake_);
  if (terminal_ < 0) return;
  set_terminal(terminal_, saved_);
  ::close(terminal_);
}

void ChatTerminal::open_terminal() {
  if (::isatty(STDIN_FILENO)) {
    terminal_ = ::dup(STDIN_FILENO);
  } else if (const std::string name = launcher_terminal(); !name.empty()) {
    terminal_ = ::open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  if (terminal_ < 0 || ::tcgetattr(terminal_, &saved_) != 0) return;
  termios settings = saved_;
  settings.c_cc[VINTR] = _POSIX_VDISABLE;
  settings.c_cc[VEOL] = kInterrupt;
  set_terminal(terminal_, settings);
}

void ChatTerminal::read_input() {
  pollfd sources[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_, POLLIN, 0}};
  while (true) {
    if (::poll(sources, 2, -1) < 0 && errno != EINTR) break;
    if (sources[1].revents != 0) return;
    if (sources[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t size = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (size > 0) take(bytes, static_cast<std::size_t>(size));
    if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) break;
  }
  if (!partial_.empty()) push({ChatInput::Kind::kLine, std::exchange(partial_, {})});
  push({});
}

void ChatTerminal::take(const char* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (bytes[i] == '\n') {
      if (partial_.ends_with('\r')) partial_.pop_back();
      push({ChatInput::Kind::kLine, std::exchange(partial_, {})});
    } else if (bytes[i] == kInterrupt) {
      partial_.clear();
      push({ChatInput::Kind::kInterrupt, {}});
    } else {
      partial_.push_back(bytes[i]);
    }
  }
}

void ChatTerminal::push(ChatInput input) {
  const std::lock_guard lock(mutex_);
  if (input.kind == ChatInput::Kind::kInterrupt && action_) return action_();
  queue_.push_back(std::move(input));
  arrived_.notify_one();
}

ChatInput ChatTerminal::read() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !queue_.empty(); });
  ChatInput input = std::move(queue_.front());
  queue_.pop_front();
  return input;
}

void ChatTerminal::on_interrupt(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  action_ = std::move(action);
}

}  // namespace tandem::launch
