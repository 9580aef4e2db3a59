// SPDX-License-Identifier: Apache-2.0
// The state of one render that every operation may need: the place for errors, and the budgets
// (steps, bytes made, nesting) that bound any template in time and memory. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device/error.h"
#include "runtime/text/jinja/source.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

inline constexpr std::uint64_t kMaxSteps = 5'000'000;
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 29;  ///< Made in one render, in all.
inline constexpr int kMaxLevels = 1500;                             ///< Nested evaluations.
inline constexpr int kMaxValueDepth = 100;                          ///< Lists within lists ...

class Runtime {
 public:
  explicit Runtime(std::string_view source) : source_(source) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// What is evaluated now: errors name this place.
  void at(Offset offset) { offset_ = offset; }
  Offset offset() const { return offset_; }
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_at(source_, offset_, concat(parts...));
  }

  void step(std::uint64_t count = 1) {
    steps_ += count;
    if (steps_ > kMaxSteps) fail("the template runs too long (more than ", kMaxSteps, " steps)");
  }
  /// Accounts for going through the characters of `value`, if it is a string.
  void read_text(const Value& value) {
    if (value.is_string()) step(value.text().size() / 16);
  }
  /// Accounts for memory that is about to be filled, before it is.
  void charge(std::uint64_t bytes) {
    bytes_ += bytes;
    if (bytes > kMaxBytes || bytes_ > kMaxBytes)
      fail("the template makes too much text (more than ", kMaxBytes >> 20, " MiB)");
  }

  Value string(std::string text, bool safe = false);
  Value sequence(Kind kind, std::vector<Value> items, std::string label = {});
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  /// What Python returns as a generator: can be read once.
  Value iterator(std::vector<Value> items) {
    return sequence(Kind::kIterator, std::move(items), "generator");
  }
  Value dict(std::shared_ptr<DictObject> object);
  template <typename T>
  Value dynamic(std::shared_ptr<T> object) {
    charge(sizeof(T));
    check_depth(*object);
    return Value::object(Kind::kDynamic, std::move(object));
  }

  /// Runs when the render is over: breaks reference cycles through namespaces and macros.
  void at_end(std::function<void()> action) { at_end_.push_back(std::move(action)); }

  /// Counts one level of recursion for its life.
  class Level {
   public:
    explicit Level(Runtime& rt) : rt_(rt) {
      if (rt_.levels_ >= kMaxLevels)
        rt_.fail("the template recurses too deep (more than ", kMaxLevels, " levels)");
      ++rt_.levels_;
    }
    ~Level() { --rt_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& rt_;
  };

 private:
  void check_depth(const Object& object) const;

  std::string_view source_;
  Offset offset_ = 0;
  std::uint64_t steps_ = 0, bytes_ = 0;
  int levels_ = 0;
  std::vector<std::function<void()>> at_end_;
};

}  // namespace tandem::runtime::jinja
