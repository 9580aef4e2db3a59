// SPDX-License-Identifier: Apache-2.0
// What a template computes with: Python's values. All are immutable and shared, except iterators
// (used up by reading) and the dynamic objects (namespaces, loops, cyclers). `depth` bounds how
// deep values nest, so that walking one cannot exhaust the stack. Used by one render at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tandem::runtime::jinja {

class Runtime;
struct CallArguments;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kView,      ///< dict.keys(), .values(), .items()
  kIterator,  ///< What map, select, reverse, ... return: read once.
  kDict,
  kDynamic,
};

struct Object {
  virtual ~Object() = default;
  int depth = 1;  ///< 1 + the deepest value inside.
};

struct UndefinedObject : Object {
  std::string message;  ///< What to say when it is used: "'x' is undefined".
};

struct StringObject : Object {
  std::string text;
  bool safe = false;  ///< Marked by `safe` or `escape`: `+` escapes what is added to it.
};

class Value;
struct SequenceObject;
struct DictObject;
struct DynamicObject;

class Value {
 public:
  Value() = default;  ///< None
  static Value undefined(std::string message);
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  static Value string(std::string text, bool safe = false);
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  /// List, tuple, range, view or iterator: held in a SequenceObject.
  bool is_sequence_object() const { return kind_ >= Kind::kList && kind_ <= Kind::kIterator; }

  std::int64_t as_int() const { return scalar_.integer; }  ///< Int and bool.
  double as_real() const {
    return kind_ == Kind::kFloat ? scalar_.real : static_cast<double>(scalar_.integer);
  }
  const std::string& text() const { return as<StringObject>().text; }
  bool is_safe() const { return is_string() && as<StringObject>().safe; }
  const SequenceObject& sequence() const;
  const DictObject& dict() const;
  DynamicObject& dynamic() const;
  const std::shared_ptr<Object>& shared() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }

  /// Python's type name: "str", "list", "NoneType", ...
  std::string_view type_name() const;
  /// Python's `is`.
  bool same_as(const Value& other) const;

 private:
  template <typename T>
  const T& as() const {
    return static_cast<const T&>(*object_);
  }
  union Scalar {
    std::int64_t integer;
    double real;
  };
  Kind kind_ = Kind::kNone;
  Scalar scalar_{0};
  std::shared_ptr<Object> object_;
};

struct SequenceObject : Object {
  std::vector<Value> items;
  std::string label;             ///< Shown name of a range, view or iterator: "dict_keys".
  mutable std::size_t read = 0;  ///< Iterator: items already taken.
};

struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;  ///< In insertion order.

  /// Adds or replaces; keys must be hashable.
  void set(const Value& key, Value value);
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;

 private:
  std::unordered_map<std::string, std::size_t> by_text_;
};

/// Functions, macros, namespaces, loops: what has behaviour.
struct DynamicObject : Object {
  virtual std::string_view type_name() const = 0;
  virtual std::string repr(Runtime& rt) const = 0;
  virtual std::optional<Value> attribute(Runtime& rt, std::string_view name);
  virtual bool callable() const { return true; }
  virtual Value call(Runtime& rt, const CallArguments& arguments);
};

/// What a call is given, already evaluated.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

}  // namespace tandem::runtime::jinja
