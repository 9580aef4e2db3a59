// SPDX-License-Identifier: Apache-2.0
// Every fault that a safetensors file or its index can have is one sentence that names it.
#include <gtest/gtest.h>

#include "runtime/weights/checkpoint.h"
#include "tests/support/model_files.h"
#include "tests/support/temporary_folder.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;
using namespace tandem::testing;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// One tensor "a" of dtype, shape and offsets as given, before 16 bytes of data.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return safetensors(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape +
                         R"(,"data_offsets":)" + offsets + "}}",
                     std::string(16, 'x'));
}

struct Fault {
  std::string bytes, expected;
};

class Safetensors : public ::testing::Test {
 protected:
  std::string error_of(const std::string& bytes) {
    write_file(folder_.path() / kSingle, bytes);
    return config_error([&] { Checkpoint::open(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(Safetensors, NamesEachFaultOfAFile) {
  const std::string good = one("F32", "[2,2]", "[0,16]");
  EXPECT_EQ(error_of(good), "");
  const std::vector<Fault> faults = {
      {"", "is empty"},
      {"abcd", "only 4 bytes"},
      {good.substr(0, 20), "truncated"},
      {good.substr(0, good.size() - 1), "tensor a lies at bytes 0 to 16 of 15"},
      {bytes_of(std::uint64_t{1} << 62) + good.substr(8), "says that its header has"},
      {bytes_of(~std::uint64_t{0}) + good.substr(8), "says that its header has"},
      {safetensors("{\"a\":", ""), "not valid JSON"},
      {safetensors("[1]", ""), "one JSON object"},
      {safetensors(R"({"a":3})", ""), "tensor a is not described by an object"},
      {safetensors(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "xxxx"), "has no dtype"},
      {one("F8_E4M3", "[16]", "[0,16]"), "type F8_E4M3, which Tandem does not read"},
      {one("I64", "[2]", "[0,16]"), "type I64"},
      {one("F32", "null", "[0,16]"), "has no shape"},
      {one("F32", "[-4]", "[0,16]"), "impossible shape"},
      {one("F32", "[0]", "[0,16]"), "impossible shape"},
      {one("F32", "[2.5]", "[0,16]"), "impossible shape"},
      {one("F32", "[4294967296,4294967296,4294967296]", "[0,16]"), "impossible shape"},
      {one("F32", "[4]", "[0]"), "has no data_offsets"},
      {one("F32", "[4]", "[16,0]"), "lies at bytes 16 to 0"},
      {one("F32", "[4]", "[-16,0]"), "lies at bytes -16"},
      {one("F32", "[4]", "[16,32]"), "lies at bytes 16 to 32 of 16"},
      {one("F32", "[4]", "[0,9223372036854775807]"), "lies at bytes 0 to 9223372036854775807"},
      {one("F32", "[4]", "[0,18446744073709551615]"), "lies at bytes"},
      {one("F32", "[3]", "[0,16]"), "has 16 bytes but its shape needs 12"},
      {one("BF16", "[2,2]", "[0,8]"), "8 bytes that belong to no tensor"},
      {one("BF16", "[2,2]", "[8,16]"), "does not start where the one before it ends"},
      {safetensors(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                   R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                   std::string(16, 'x')),
       "tensor b overlaps another tensor"},
  };
  for (const Fault& fault : faults) {
    const std::string error = error_of(fault.bytes);
    EXPECT_NE(error.find(fault.expected), std::string::npos)
        << "expected '" << fault.expected << "', got '" << error << "'";
    EXPECT_NE(error.find((folder_.path() / kSingle).string()), std::string::npos) << error;
  }
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  const std::string good = one("F32", "[2,2]", "[0,16]");
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(error_of(good.substr(0, size)), "") << size;
}

TEST_F(Safetensors, SkipsTheMetadataEntry) {
  write_file(folder_.path() / kSingle,
             safetensors(R"({"__metadata__":{"format":"pt"},)"
                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                         "xxxx"));
  EXPECT_EQ(Checkpoint::open(folder_.path()).tensors().size(), 1u);
}

class SafetensorsIndex : public Safetensors {
 protected:
  void SetUp() override {
    write_file(folder_.path() / "one.safetensors", one("F32", "[4]", "[0,16]"));
  }
  std::string index_error(const std::string& text) {
    write_file(folder_.path() / kIndex, text);
    return config_error([&] { Checkpoint::open(folder_.path()); });
  }
};

TEST_F(SafetensorsIndex, NamesEachFault) {
  EXPECT_EQ(index_error(R"({"weight_map":{"a":"one.safetensors"}})"), "");
  const std::vector<Fault> faults = {
      {"{", "not valid JSON"},
      {"{}", "\"weight_map\" must be an object"},
      {R"({"weight_map":{}})", "\"weight_map\" must be an object"},
      {R"({"weight_map":{"a":7}})", "an object of file names"},
      {R"({"weight_map":{"a":"two.safetensors"}})", "names two.safetensors, which is not in"},
      {R"({"weight_map":{"a":"../one.safetensors"}})", "is not a file name"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "is not a file name"},
      {R"({"weight_map":{"b":"one.safetensors"}})", "holds tensor b, which it does not"},
  };
  for (const Fault& fault : faults) {
    const std::string error = index_error(fault.bytes);
    EXPECT_NE(error.find(fault.expected), std::string::npos)
        << "expected '" << fault.expected << "', got '" << error << "'";
    EXPECT_NE(error.find(kIndex), std::string::npos) << error;
  }
}

TEST_F(SafetensorsIndex, SeveralFilesNeedAnIndex) {
  EXPECT_EQ(Checkpoint::open(folder_.path()).tensors().size(), 1u);  // one file needs none
  write_file(folder_.path() / "two.safetensors", one("F32", "[4]", "[0,16]"));
  const std::string error = config_error([&] { Checkpoint::open(folder_.path()); });
  EXPECT_NE(error.find("holds 2 .safetensors files but no"), std::string::npos) << error;
}

TEST(SafetensorsFolder, AnEmptyFolderIsNamed) {
  const TemporaryFolder folder;
  const std::string error = config_error([&] { Checkpoint::open(folder.path()); });
  EXPECT_NE(error.find("no .safetensors files in " + folder.path().string()), std::string::npos);
}

}  // namespace
}  // namespace tandem::runtime
