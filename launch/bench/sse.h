// SPDX-License-Identifier: Apache-2.0
// Server-sent events as their bytes come (WHATWG HTML, 9.2): the data of each complete event. Only
// `data` fields matter here; line ends are LF or CRLF. Plain value.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tandem::launch {

class SseReader {
 public:
  /// Calls `take` for each event that ends within `bytes`.
  void push(std::string_view bytes, const std::function<void(const std::string&)>& take) {
    for (const char c : bytes) {
      if (c != '\n') {
        line_ += c;
        continue;
      }
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      if (line_.rfind("data:", 0) == 0) {
        if (has_data_) data_ += '\n';
        data_ += line_.substr(line_.size() > 5 && line_[5] == ' ' ? 6 : 5);
        has_data_ = true;
      } else if (line_.empty() && has_data_) {
        take(data_);
        data_.clear();
        has_data_ = false;
      }
      line_.clear();
    }
  }

 private:
  std::string line_, data_;
  bool has_data_ = false;
};

}  // namespace tandem::launch
