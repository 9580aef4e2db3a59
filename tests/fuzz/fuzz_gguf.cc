// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: header, config, tokenizer and a few values, or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/error.h"
#include "runtime/weights/gguf_config.h"
#include "runtime/weights/gguf_reader.h"
#include "tests/fuzz/read_values.h"

namespace runtime = tandem::runtime;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const runtime::GgufFile file(std::make_shared<const runtime::MappedFile>(
        "fuzz.gguf", std::as_bytes(std::span(data, size))));
    tandem::testing::read_values(file.tensors());
    const runtime::ModelConfig config = runtime::gguf_config(file);
    if (config.num_parameters() < 0) __builtin_trap();
    tandem::testing::read_values(runtime::gguf_tensors(file));
    runtime::gguf_vocabulary(file);
  } catch (const tandem::ConfigError&) {
  }
  return 0;
}
