// SPDX-License-Identifier: Apache-2.0
// Any bytes as model.safetensors.index.json beside two good shards, "a" and "b".
#include <cstddef>
#include <cstdint>

#include "runtime/weights/checkpoint.h"
#include "tests/fuzz/read_values.h"
#include "tests/support/model_files.h"
#include "tests/support/temporary_folder.h"

using namespace tandem::testing;

namespace {

std::string shard(const char* name) {
  return safetensors(
      tandem::concat(R"({")", name, R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
      "12345678");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TemporaryFolder* const folder = [] {
    auto* out = new TemporaryFolder;
    write_file(out->path() / "a.safetensors", shard("a"));
    write_file(out->path() / "b.safetensors", shard("b"));
    return out;
  }();
  write_file(folder->path() / "model.safetensors.index.json",
             std::string(reinterpret_cast<const char*>(data), size));
  config_error([&] {
    const auto checkpoint = tandem::runtime::Checkpoint::open(folder->path());
    read_values(checkpoint.tensors());
  });
  return 0;
}
