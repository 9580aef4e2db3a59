// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template, rendered over a conversation: a text or a ConfigError, in bounded
// time, memory and stack.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>

#include "kernels/device/error.h"
#include "runtime/text/chat_template.h"

namespace {

const boost::json::object& variables() {
  static const boost::json::object kVariables =
      boost::json::parse(
          R"({"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true,
              "i": 7, "f": 2.5, "n": null, "s": "h\u00e9llo w\u00f6rld", "l": [3, 1, 2],
              "d": {"a": 1, "b": [1, 2.5, "x"], "c": {"d": null}},
              "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
              "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U\n"},
                           {"role": "assistant", "content": "A", "tool_calls": []}]})")
          .as_object();
  return kVariables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    tandem::runtime::ChatTemplate({reinterpret_cast<const char*>(data), size}).render(variables());
  } catch (const tandem::ConfigError&) {
  }
  return 0;
}
