// SPDX-License-Identifier: Apache-2.0
// Lines and Ctrl-C from the terminal of a chat. A thread reads standard input, so that Ctrl-C is
// seen while an answer is written. At a terminal Ctrl-C is made an end-of-line character: it comes
// as a byte through the terminal's own line editing, also when the terminal is mpirun's, which
// would end the job at a real SIGINT. The destructor gives the terminal back as it was.
#pragma once

#include <termios.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tandem::launch {

struct ChatInput {
  enum class Kind : std::uint8_t { kLine, kInterrupt, kEnd };
  Kind kind = Kind::kEnd;
  std::string line;  ///< Without its line end.
};

class ChatTerminal {
 public:
  ChatTerminal();
  ~ChatTerminal();
  ChatTerminal(const ChatTerminal&) = delete;
  ChatTerminal& operator=(const ChatTerminal&) = delete;

  /// A person types, so prompts are shown.
  bool interactive() const { return terminal_ >= 0; }

  /// The next line, Ctrl-C or the end; blocks.
  ChatInput read();

  /// While set, Ctrl-C calls `action` on the reading thread instead of being queued.
  void on_interrupt(std::function<void()> action);

 private:
  void open_terminal();
  void read_input();
  void take(const char* bytes, std::size_t size);
  void push(ChatInput input);

  int terminal_ = -1;  // where the settings are changed; -1: no terminal
  termios saved_{};
  int wake_ = -1;  // eventfd that ends the reading thread
  std::string partial_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<ChatInput> queue_;
  std::function<void()> action_;
  std::thread thread_;
};

}  // namespace tandem::launch
