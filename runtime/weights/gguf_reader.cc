// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/device/error.h"
#include "runtime/weights/dequantize.h"
#include "runtime/weights/gguf_cursor.h"

namespace tandem::runtime {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::int64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 46;
constexpr std::int64_t kMinPairBytes = 8 + 4 + 1;            // key length, type, value
constexpr std::int64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // name, dims, extent, type, offset

/// GGUF's number of a tensor type, or nothing when Tandem does not read it.
std::optional<StorageType> storage_type(std::uint32_t number) {
  switch (number) {
    case 0:
      return StorageType::kF32;
    case 1:
      return StorageType::kF16;
    case 2:
      return StorageType::kQ4_0;
    case 3:
      return StorageType::kQ4_1;
    case 6:
      return StorageType::kQ5_0;
    case 7:
      return StorageType::kQ5_1;
    case 8:
      return StorageType::kQ8_0;
    case 30:
      return StorageType::kBF16;
    default:
      return std::nullopt;
  }
}

void read_preamble(GgufCursor& cursor, const std::string& path) {
  const auto magic = cursor.number<std::uint32_t>("its magic number");
  TANDEM_REQUIRE(std::memcmp(&magic, "GGUF", 4) == 0, path,
                 " does not start with the letters GGUF, so it is not a GGUF file: check --model");
  const auto version = cursor.number<std::uint32_t>("its version");
  TANDEM_REQUIRE((version & 0xffffu) != 0, path,
                 " is a big-endian GGUF file; download the little-endian one");
  TANDEM_REQUIRE(version == kVersion, path, " has GGUF version ", version,
                 ", Tandem reads version 3: convert the model again with a current llama.cpp");
}

/// One tensor's header; `entry.data` stays null, its offset is returned.
std::pair<std::string, std::int64_t> read_tensor(GgufCursor& cursor, const std::string& path,
                                                 TensorEntry& entry) {
  std::string name = cursor.text("a tensor name");
  const auto dims = cursor.number<std::uint32_t>(name);
  if (dims < 1 || dims > 4) cursor.damaged(concat("tensor ", name, " has ", dims, " dimensions"));
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < dims; ++i) {
    const auto extent = cursor.number<std::uint64_t>(name);
    if (extent < 1 || extent > static_cast<std::uint64_t>(kMaxElements / elements))
      cursor.damaged(concat("tensor ", name, " has an impossible shape"));
    elements *= static_cast<std::int64_t>(extent);
    entry.shape.insert(entry.shape.begin(), static_cast<std::int64_t>(extent));
  }
  const auto type_number = cursor.number<std::uint32_t>(name);
  const std::optional<StorageType> type = storage_type(type_number);
  TANDEM_REQUIRE(type.has_value(), path, ": tensor ", name, " has GGUF type number ", type_number,
                 ", which Tandem does not read; use a file quantized as Q8_0, Q4_0, Q4_1, Q5_0, "
                 "Q5_1 or kept as F16, BF16 or F32");
  entry.type = *type;
  if (entry.shape.back() % block_elements(*type) != 0)
    cursor.damaged(concat("tensor ", name, " has rows of ", entry.shape.back(),
                          " values, which is no whole number of ", runtime::name(*type),
                          " blocks"));
  entry.size_bytes = elements / block_elements(*type) * block_bytes(*type);
  const auto offset = cursor.number<std::uint64_t>(name);
  if (offset > static_cast<std::uint64_t>(kMaxElements))
    cursor.damaged(concat("tensor ", name, " lies beyond the end of the file"));
  return {std::move(name), static_cast<std::int64_t>(offset)};
}

/// Points the entries into the data; tensors must be aligned, inside the file and apart.
void place_tensors(const GgufCursor& cursor, const MappedFile& file, std::int64_t alignment,
                   std::vector<std::pair<std::int64_t, TensorMap::value_type*>>& tensors) {
  const std::int64_t data = (cursor.position() + alignment - 1) / alignment * alignment;
  const auto size = static_cast<std::int64_t>(file.bytes().size());
  std::sort(tensors.begin(), tensors.end());
  std::int64_t end_before = 0;
  for (auto& [offset, item] : tensors) {
    TensorEntry& entry = item->second;
    if (offset % alignment != 0)
      cursor.damaged(concat("tensor ", item->first, " starts at byte ", offset,
                            " of the data, which is no multiple of the alignment ", alignment));
    if (offset < end_before)
      cursor.damaged(concat("tensor ", item->first, " overlaps another one"));
    if (data + offset + entry.size_bytes > size)
      cursor.damaged(concat("tensor ", item->first, " ends at byte ",
                            data + offset + entry.size_bytes, " of a file of ", size));
    end_before = offset + entry.size_bytes;
    entry.data = file.bytes().data() + data + offset;
  }
}

}  // namespace

GgufFile::GgufFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
  GgufCursor cursor(*file_);
  read_preamble(cursor, file_->path());
  const auto tensor_count = cursor.number<std::uint64_t>("its tensor count");
  const std::int64_t pair_count = cursor.count(kMinPairBytes, "the metadata count");
  for (std::int64_t i = 0; i < pair_count; ++i) {
    std::string key = cursor.text("a metadata key");
    const auto type = cursor.number<std::uint32_t>(key);
    GgufValue value = cursor.value(type, key);
    const bool is_new = metadata_.emplace(key, std::move(value)).second;
    if (!is_new) cursor.damaged(concat("metadata key ", key, " comes twice"));
  }
  const std::int64_t alignment =
      integer_or("general.alignment", 1, kMaxAlignment, kDefaultAlignment);
  if (!std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    wrong("general.alignment", "a power of two");
  if (tensor_count > static_cast<std::uint64_t>(cursor.remaining() / kMinTensorBytes))
    cursor.damaged(concat("the tensor count ", tensor_count, " is more than the file can hold"));
  std::vector<std::pair<std::int64_t, TensorMap::value_type*>> order;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    TensorEntry entry;
    const auto [name, offset] = read_tensor(cursor, file_->path(), entry);
    const auto [at, is_new] = tensors_.emplace(name, std::move(entry));
    if (!is_new) cursor.damaged(concat("tensor ", name, " comes twice"));
    order.emplace_back(offset, &*at);
  }
  place_tensors(cursor, *file_, alignment, order);
}

const TensorEntry* GgufFile::find_tensor(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

}  // namespace tandem::runtime
