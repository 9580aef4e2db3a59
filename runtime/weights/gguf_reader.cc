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
constexpr std::int64_t kMaxParts = 99999;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 46;
constexpr std::int64_t kMinPairBytes = 8 + 4 + 1;            // key length, type, value
constexpr std::int64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // name, dims, extent, type, offset

/// GGUF's numbers of the tensor types that Tandem reads.
constexpr std::pair<std::uint32_t, StorageType> kTensorTypes[] = {
    {0, StorageType::kF32},    {1, StorageType::kF16},   {2, StorageType::kQ4_0},
    {3, StorageType::kQ4_1},   {6, StorageType::kQ5_0},  {7, StorageType::kQ5_1},
    {8, StorageType::kQ8_0},   {10, StorageType::kQ2K},  {11, StorageType::kQ3K},
    {12, StorageType::kQ4K},   {13, StorageType::kQ5K},  {14, StorageType::kQ6K},
    {20, StorageType::kIQ4NL}, {30, StorageType::kBF16},
};

std::optional<StorageType> storage_type(std::uint32_t number) {
  for (const auto& [known, type] : kTensorTypes)
    if (known == number) return type;
  return std::nullopt;
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
                 ", which Tandem does not read; use a file quantized as Q2_K to Q6_K, Q4_0, Q4_1, "
                 "Q5_0, Q5_1, Q8_0 or IQ4_NL, or kept as F16, BF16 or F32");
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

/// "name-00001-of-00003.gguf" -> part `number` of the same model.
std::string part_path(const std::string& first, std::int64_t number, std::int64_t count) {
  const auto padded = [](std::int64_t value) {
    const std::string digits = std::to_string(value);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  const std::string ending = concat("-", padded(1), "-of-", padded(count), ".gguf");
  TANDEM_REQUIRE(first.ends_with(ending), first, " is one of ", count,
                 " parts of a model but not named as the first, ...", ending,
                 ": give --model the first part and keep the names");
  return concat(first.substr(0, first.size() - ending.size()), "-", padded(number), "-of-",
                padded(count), ".gguf");
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : GgufFile(std::make_shared<const MappedFile>(path)) {
  const std::int64_t parts = integer_or("split.count", 1, kMaxParts, 1);
  if (parts > 1) add_parts(parts);
}

void GgufFile::add_parts(std::int64_t count) {
  for (std::int64_t number = 2; number <= count; ++number) {
    const std::string path = part_path(this->path(), number, count);
    std::error_code error;
    TANDEM_REQUIRE(std::filesystem::exists(path, error), this->path(), " is split in ", count,
                   " parts but there is no ", path, ": download all parts");
    GgufFile part(std::make_shared<const MappedFile>(path));
    TANDEM_REQUIRE(part.integer("split.no", 0, count) == number - 1, path,
                   " is not the part that its name says: download all parts again");
    for (auto& [name, tensor] : part.tensors_)
      TANDEM_REQUIRE(tensors_.emplace(name, std::move(tensor)).second, path, ": tensor ", name,
                     " is in two parts: download all parts again");
    files_.push_back(part.files_.front());
  }
  const auto total = static_cast<std::int64_t>(tensors_.size());
  TANDEM_REQUIRE(integer_or("split.tensors.count", 0, kMaxElements, total) == total, path(),
                 " and its other parts hold ", total,
                 " tensors, not the number that "
                 "split.tensors.count says: download all parts again");
}

GgufFile::GgufFile(std::shared_ptr<const MappedFile> file) {
  files_.push_back(std::move(file));
  GgufCursor cursor(*files_.front());
  read_preamble(cursor, path());
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
    const auto [name, offset] = read_tensor(cursor, path(), entry);
    const auto [at, is_new] = tensors_.emplace(name, std::move(entry));
    if (!is_new) cursor.damaged(concat("tensor ", name, " comes twice"));
    order.emplace_back(offset, &*at);
  }
  place_tensors(cursor, *files_.front(), alignment, order);
}

const TensorEntry* GgufFile::find_tensor(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

}  // namespace tandem::runtime
