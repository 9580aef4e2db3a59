// SPDX-License-Identifier: Apache-2.0
// Blocks of every quantised type give, bit for bit, the values of the `gguf` Python package.
#include "runtime/weights/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <boost/json/parse.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::runtime {
namespace {

std::string from_hex(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return out;
}

StorageType type_of(std::string_view wanted) {
  for (int i = 0; i < static_cast<int>(StorageType::kDummy); ++i)
    if (name(static_cast<StorageType>(i)) == wanted) return static_cast<StorageType>(i);
  ADD_FAILURE() << "no type " << wanted;
  return StorageType::kF32;
}

TEST(Dequantize, EqualsTheGgufPackageBitForBit) {
  std::ifstream in(TANDEM_FIXTURES "/quants.json");
  std::stringstream text;
  text << in.rdbuf();
  const boost::json::value cases = boost::json::parse(text.str());
  ASSERT_EQ(cases.as_array().size(), 11u);
  for (const boost::json::value& item : cases.as_array()) {
    const StorageType type = type_of(std::string_view(item.at("type").as_string()));
    // An odd offset: blocks in a file have no alignment.
    std::string blocks(1, 'x');
    blocks += from_hex(item.at("blocks").as_string());
    const std::string expected = from_hex(item.at("values").as_string());
    const auto size = static_cast<std::int64_t>(blocks.size()) - 1;
    ASSERT_EQ(size % block_bytes(type), 0);
    const std::int64_t count = size / block_bytes(type);
    std::vector<float> values(static_cast<std::size_t>(count * block_elements(type)));
    ASSERT_EQ(values.size() * sizeof(float), expected.size());
    dequantize(type, reinterpret_cast<const std::byte*>(blocks.data()) + 1, count, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, expected.data() + sizeof bits * i, sizeof bits);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), bits) << name(type) << " value " << i;
    }
  }
}

TEST(Dequantize, PlainTypesConvertExactly) {
  const std::uint16_t half = 0x3e00, brain = 0x3fc0;  // 1.5
  float value = 0;
  dequantize(StorageType::kF16, reinterpret_cast<const std::byte*>(&half), 1, &value);
  EXPECT_EQ(value, 1.5f);
  dequantize(StorageType::kBF16, reinterpret_cast<const std::byte*>(&brain), 1, &value);
  EXPECT_EQ(value, 1.5f);
}

}  // namespace
}  // namespace tandem::runtime
