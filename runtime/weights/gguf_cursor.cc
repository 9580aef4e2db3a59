// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/gguf_cursor.h"

#include <cstring>
#include <limits>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

// GGUF's numbers for the types of metadata values.
enum : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

std::int64_t value_bytes(std::uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    default:
      return 8;  // a string has at least its length
  }
}

}  // namespace

void GgufCursor::damaged(const std::string& what) const {
  throw ConfigError(concat(file_->path(), ": ", what, "; the file is damaged, download it again"));
}

void GgufCursor::take(void* out, std::int64_t size_bytes, std::string_view what) {
  if (size_bytes > remaining()) damaged(concat("it ends within ", what));
  std::memcpy(out, file_->bytes().data() + position_, static_cast<std::size_t>(size_bytes));
  position_ += size_bytes;
}

std::int64_t GgufCursor::count(std::int64_t item_bytes, std::string_view what) {
  const auto value = number<std::uint64_t>(what);
  if (value > static_cast<std::uint64_t>(remaining() / item_bytes))
    damaged(concat(what, " ", value, " is more than the rest of the file can hold"));
  return static_cast<std::int64_t>(value);
}

std::string GgufCursor::text(std::string_view what) {
  std::string out(static_cast<std::size_t>(count(1, concat("the length of ", what))), '\0');
  take(out.data(), static_cast<std::int64_t>(out.size()), what);
  return out;
}

GgufValue GgufCursor::value(std::uint32_t type, std::string_view key) {
  switch (type) {
    case kUint8:
      return std::int64_t{number<std::uint8_t>(key)};
    case kInt8:
      return std::int64_t{number<std::int8_t>(key)};
    case kUint16:
      return std::int64_t{number<std::uint16_t>(key)};
    case kInt16:
      return std::int64_t{number<std::int16_t>(key)};
    case kUint32:
      return std::int64_t{number<std::uint32_t>(key)};
    case kInt32:
      return std::int64_t{number<std::int32_t>(key)};
    case kFloat32:
      return double{number<float>(key)};
    case kBool:
      return number<std::uint8_t>(key) != 0;
    case kString:
      return text(key);
    case kArray:
      return list(key);
    case kInt64:
      return number<std::int64_t>(key);
    case kFloat64:
      return number<double>(key);
    case kUint64:
      break;
    default:
      damaged(concat("metadata key ", key, " has unknown type ", type));
  }
  const auto big = number<std::uint64_t>(key);
  if (big > std::numeric_limits<std::int64_t>::max()) damaged(concat(key, " is ", big));
  return static_cast<std::int64_t>(big);
}

GgufValue GgufCursor::list(std::string_view key) {
  const auto type = number<std::uint32_t>(key);
  if (type > kFloat64 || type == kArray)
    damaged(concat("metadata key ", key, " is a list of unknown type ", type));
  const std::int64_t size = count(value_bytes(type), concat("the size of list ", key));
  std::vector<std::int64_t> whole;
  std::vector<double> real;
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < size; ++i) {
    GgufValue item = value(type, key);
    if (auto* text = std::get_if<std::string>(&item)) texts.push_back(std::move(*text));
    if (const auto* number = std::get_if<double>(&item)) real.push_back(*number);
    if (const auto* number = std::get_if<std::int64_t>(&item)) whole.push_back(*number);
    if (const auto* flag = std::get_if<bool>(&item)) whole.push_back(*flag ? 1 : 0);
  }
  if (type == kString) return texts;
  if (type == kFloat32 || type == kFloat64) return real;
  return whole;
}

}  // namespace tandem::runtime
