// SPDX-License-Identifier: Apache-2.0
#include "runtime/waits/rank_log.h"

#include <cstring>
#include <type_traits>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

class Writer {
 public:
  template <typename T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename Container>
  void array(const Container& values) {
    value(static_cast<std::uint64_t>(values.size()));
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <typename T>
  void value(T& value) {
    take(&value, sizeof value);
  }
  template <typename Container>
  void array(Container& values) {
    std::uint64_t size = 0;
    value(size);
    TANDEM_ASSERT(size <= (bytes_.size() - at_) / sizeof values[0], "a rank's log is cut off");
    values.resize(size);
    take(values.data(), size * sizeof values[0]);
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  void take(void* to, std::size_t size) {
    TANDEM_ASSERT(size <= bytes_.size() - at_, "a rank's log is cut off");
    if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
};

}  // namespace

std::string serialize(const RankLog& log) {
  Writer out;
  out.value(log.rank);
  out.array(log.host);
  out.array(log.device);
  out.value(log.synchronous);
  out.value(log.ceilings);
  out.value(log.clock_uncertainty_us);
  out.value(log.dropped);
  out.array(log.steps);
  out.array(log.spans);
  return out.bytes;
}

RankLog deserialize_rank_log(const std::string& bytes) {
  RankLog log;
  Reader in(bytes);
  in.value(log.rank);
  in.array(log.host);
  in.array(log.device);
  in.value(log.synchronous);
  in.value(log.ceilings);
  in.value(log.clock_uncertainty_us);
  in.value(log.dropped);
  in.array(log.steps);
  in.array(log.spans);
  TANDEM_ASSERT(in.at_end(), "a rank's log has bytes behind its end");
  return log;
}

}  // namespace tandem::runtime
