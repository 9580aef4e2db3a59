// SPDX-License-Identifier: Apache-2.0
// Any bytes as a JSON file: a value or a ConfigError.
#include <cstddef>
#include <cstdint>

#include "kernels/device/error.h"
#include "runtime/json_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    tandem::runtime::parse_json_object({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  } catch (const tandem::ConfigError&) {
  }
  return 0;
}
