// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/model_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "kernels/device/error.h"
#include "support/config_error.h"
#include "tests/support/temporary_folder.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;
using tandem::testing::TemporaryFolder;

/// A cache as huggingface_hub lays it out: snapshots are symlinks into blobs.
class HubCache : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HF_HUB_CACHE", cache_.path().c_str(), 1);
    write(repository() / "blobs" / "b1", "{}");
    write(repository() / "refs" / "main", "abc123\n");
    fs::create_directories(snapshot());
    fs::create_symlink("../../blobs/b1", snapshot() / "config.json");
  }
  void TearDown() override { unsetenv("HF_HUB_CACHE"); }

  fs::path repository() const { return cache_.path() / "models--org--name"; }
  fs::path snapshot() const { return repository() / "snapshots" / "abc123"; }
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static std::string error_of(const std::string& model) {
    return tandem::testing::config_error([&] { resolve_model_path(model); });
  }

  TemporaryFolder cache_;
};

TEST_F(HubCache, FindsTheSnapshotThatMainNames) {
  fs::create_directories(repository() / "snapshots" / "older");
  EXPECT_EQ(resolve_model_path("org/name"), snapshot());
}

TEST_F(HubCache, FindsTheOnlySnapshotWithoutRef) {
  fs::remove_all(repository() / "refs");
  EXPECT_EQ(resolve_model_path("org/name"), snapshot());
}

TEST_F(HubCache, AnAbsentModelEndsWithTheDownloadCommand) {
  const std::string error = error_of("org/other");
  EXPECT_NE(error.find("hf download org/other"), std::string::npos) << error;
  EXPECT_NE(error.find(cache_.path().string()), std::string::npos) << error;
}

TEST_F(HubCache, ASnapshotWithoutConfigIsAbsent) {
  fs::remove(snapshot() / "config.json");
  EXPECT_NE(error_of("org/name").find("hf download org/name"), std::string::npos);
}

TEST_F(HubCache, ARefCannotLeaveTheCache) {
  write(repository() / "refs" / "main", "../../../etc");
  EXPECT_EQ(resolve_model_path("org/name"), snapshot());
}

TEST_F(HubCache, ASnapshotWithOneGgufFileIsThatFile) {
  fs::remove(snapshot() / "config.json");
  write(snapshot() / "m-00001-of-00002.gguf", "x");
  write(snapshot() / "m-00002-of-00002.gguf", "x");
  EXPECT_EQ(resolve_model_path("org/name"), snapshot() / "m-00001-of-00002.gguf");
  write(snapshot() / "other.gguf", "x");
  EXPECT_NE(error_of("org/name").find("choose one"), std::string::npos);
}

TEST_F(HubCache, PathsAndNonsense) {
  EXPECT_EQ(resolve_model_path(snapshot().string()), snapshot());
  write(cache_.path() / "a.gguf", "x");
  EXPECT_EQ(resolve_model_path((cache_.path() / "a.gguf").string()), cache_.path() / "a.gguf");
  write(cache_.path() / "a.bin", "x");
  EXPECT_NE(error_of((cache_.path() / "a.bin").string()).find("no .gguf"), std::string::npos);
  for (const char* model : {"", "a/b/c", "../x", "org/", "no-such-thing", "a b/c"})
    EXPECT_NE(error_of(model).find("there is no model"), std::string::npos) << model;
}

TEST(HubCacheFolder, FollowsTheVariablesInOrder) {
  unsetenv("HF_HUB_CACHE");
  setenv("HF_HOME", "/x/hf", 1);
  EXPECT_EQ(hub_cache_folder(), "/x/hf/hub");
  unsetenv("HF_HOME");
  setenv("XDG_CACHE_HOME", "/x/cache", 1);
  EXPECT_EQ(hub_cache_folder(), "/x/cache/huggingface/hub");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(hub_cache_folder(), fs::path(std::getenv("HOME")) / ".cache" / "huggingface" / "hub");
}

}  // namespace
}  // namespace tandem::runtime
