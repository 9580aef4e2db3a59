// SPDX-License-Identifier: Apache-2.0
#include "launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace tandem::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// What mpirun and srun need to end their ranks.
constexpr std::chrono::seconds kGrace{10};
constexpr int kPollMs = 100;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {
    TANDEM_REQUIRE(value >= 0, "cannot start a child: ", std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const { return value_; }
  void close() {
    if (value_ >= 0) ::close(value_);
    value_ = -1;
  }

 private:
  int value_;
};

/// Signals that end a program are read from a descriptor while this lives.
class CaughtSignals {
 public:
  CaughtSignals() : fd_((block(), ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK))) {}
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals() { restore(); }
  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int fd() const { return fd_.get(); }
  /// The signal that arrived, 0 when there was none.
  int take() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  void block() {
    ::sigemptyset(&set_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set_, number);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  sigset_t set_{}, before_{};
  Descriptor fd_;
};

[[noreturn]] void become(const std::vector<std::string>& words, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

/// Passes `signal` on, then waits until the whole group is gone.
[[noreturn]] void end_group(pid_t pid, const CaughtSignals& signals, int signal) {
  ::kill(pid, SIGTERM);
  for (const auto start = Clock::now();;) {
    if (::waitpid(pid, nullptr, WNOHANG) == pid) break;
    if (Clock::now() - start > kGrace || signals.take() != 0) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      break;
    }
    ::poll(nullptr, 0, kPollMs);
  }
  throw Interrupted(signal);
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& environment) {
  int ends[2];
  TANDEM_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0, "cannot start a child: ", std::strerror(errno));
  Descriptor output(ends[0]), input(ends[1]);
  const CaughtSignals signals;
  const pid_t parent = ::getpid(), pid = ::fork();
  TANDEM_REQUIRE(pid >= 0, "cannot start a child: ", std::strerror(errno));
  if (pid == 0) {
    signals.restore();
    ::dup2(input.get(), STDOUT_FILENO);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    become(words, parent);
  }
  input.close();
  ChildResult result;
  for (bool open = true; open;) {
    std::array<pollfd, 2> ready{{{output.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0) continue;
    if (const int signal = signals.take(); signal != 0) end_group(pid, signals, signal);
    if (ready[0].revents == 0) continue;
    std::array<char, 1 << 16> buffer;
    const ssize_t count = ::read(output.get(), buffer.data(), buffer.size());
    if (count > 0) result.output.append(buffer.data(), static_cast<std::size_t>(count));
    open = count > 0 || (count < 0 && errno == EINTR);
  }
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (const int signal = signals.take(); ended == 0 && signal != 0)
      end_group(pid, signals, signal);
    if (ended != 0) {
      result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    ::poll(nullptr, 0, kPollMs / 10);
  }
  TANDEM_REQUIRE(result.exit_code != 127, "cannot start ", words[0],
                 "; install it or put it on PATH");
  return result;
}

}  // namespace tandem::launch
