// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: its tensors and a few of their values, or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/error.h"
#include "runtime/weights/safetensors_reader.h"
#include "tests/fuzz/read_values.h"

namespace runtime = tandem::runtime;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const runtime::MappedFile file("fuzz.safetensors", std::as_bytes(std::span(data, size)));
    tandem::testing::read_values(runtime::read_safetensors(file));
  } catch (const tandem::ConfigError&) {
  }
  return 0;
}
