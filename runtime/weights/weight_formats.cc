// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/weight_formats.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <map>

#include "kernels/device/error.h"
#include "runtime/weights/dequantize.h"

namespace tandem::runtime {
namespace {

using kernels::QuantBlock;
using kernels::QuantFormat;

constexpr std::size_t kValues = QuantBlock::kValues;

/// The codes of one block: its values at scale 1 and least value 0 are whole numbers, which the
/// function that defines the type gives.
void read_codes(StorageType type, const std::byte* block, std::size_t size, std::int8_t* codes) {
  std::array<std::byte, 34> unit;  // the longest block
  std::memcpy(unit.data(), block, size);
  const Float16 one(1.0f), none(0.0f);
  std::memcpy(unit.data(), &one, sizeof one);
  if (quant_format(type)->has_least) std::memcpy(unit.data() + 2, &none, sizeof none);
  std::array<float, kValues> values;
  dequantize(type, unit.data(), 1, values.data());
  for (std::size_t i = 0; i < kValues; ++i) codes[i] = static_cast<std::int8_t>(values[i]);
}

}  // namespace

std::optional<QuantFormat> quant_format(StorageType type) {
  switch (type) {
    case StorageType::kQ4_0:
      return QuantFormat{4, 8, false};
    case StorageType::kQ4_1:
      return QuantFormat{4, 0, true};
    case StorageType::kQ8_0:
    case StorageType::kQ5_0:
    case StorageType::kIQ4NL:
      return QuantFormat{8, 0, false};
    case StorageType::kQ5_1:
      return QuantFormat{8, 0, true};
    default:
      return std::nullopt;
  }
}

void read_blocks(StorageType type, const std::byte* blocks, std::int64_t num_blocks,
                 QuantBlock* out) {
  const std::int64_t size = block_bytes(type);
  const bool has_least = quant_format(type)->has_least;
  for (std::int64_t i = 0; i < num_blocks; ++i, blocks += size, ++out) {
    std::memcpy(&out->scale, blocks, sizeof out->scale);
    out->least = Float16();
    if (has_least) std::memcpy(&out->least, blocks + 2, sizeof out->least);
    read_codes(type, blocks, static_cast<std::size_t>(size), out->codes);
  }
}

std::optional<QuantFormat> quant_format(const Checkpoint& checkpoint,
                                        const std::vector<TensorSlice>& parts,
                                        parallel::Range cols) {
  if (cols.begin % QuantBlock::kValues != 0 || cols.size() % QuantBlock::kValues != 0)
    return std::nullopt;
  std::optional<QuantFormat> all;
  for (const TensorSlice& part : parts) {
    const auto format = quant_format(checkpoint.at(part.name).type);
    if (!format) return std::nullopt;
    all = all ? kernels::common_format(*all, *format) : format;
  }
  return all;
}

std::string main_format(const Checkpoint& checkpoint) {
  std::map<StorageType, std::int64_t> bytes;
  for (const auto& [name, entry] : checkpoint.tensors())
    if (quant_format(entry.type)) bytes[entry.type] += entry.size_bytes;
  if (bytes.empty()) return {};
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string name(runtime::name(most->first));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return name;
}

}  // namespace tandem::runtime
