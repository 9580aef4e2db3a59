// SPDX-License-Identifier: Apache-2.0
// Any bytes as tokenizer.json: a tokenizer that encodes and decodes, or a ConfigError.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>

#include "kernels/device/error.h"
#include "runtime/json_file.h"
#include "runtime/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem::runtime;
  try {
    const boost::json::value file =
        parse_json_object({reinterpret_cast<const char*>(data), size}, "tokenizer.json");
    const Tokenizer tokenizer = Tokenizer::from_json(file, nullptr);
    const auto ids = tokenizer.encode("ab <s> \xC3\xA9\n 12");
    tokenizer.decode(ids, false);
  } catch (const tandem::ConfigError&) {
  }
  return 0;
}
