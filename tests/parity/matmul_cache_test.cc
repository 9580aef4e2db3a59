// SPDX-License-Identifier: Apache-2.0
// The files that keep what was timed for matmuls, and the choices made from them. No GPU is needed.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/cuda/decode_choice.h"
#include "kernels/cuda/tuning_file.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "support/temporary_folder.h"

namespace tandem::kernels {
namespace {

using tandem::testing::TemporaryFolder;

MatmulShape shape_of(std::int64_t m, std::int64_t n = 64, DType out = DType::kBF16) {
  MatmulShape shape;
  shape.m = m;
  shape.n = n;
  shape.k = 128;
  shape.in = DType::kBF16;
  shape.out = out;
  return shape;
}

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// What `body` logs.
template <typename Body>
std::string logged(const std::filesystem::path& folder, Body body) {
  LogConfig config;
  config.file = (folder / "log").string();
  configure_log(config);
  body();
  configure_log({});
  const std::string text = content(folder / "log");
  std::filesystem::remove(folder / "log");
  return text;
}

constexpr MatmulCache<8>::Words kWords{1, 0xffffffffffffffffu, 3, 4, 5, 6, 7, 8};

TEST(MatmulCache, KeepsEntriesOfABucket) {
  const TemporaryFolder folder;
  const TuningFile file{folder.path() / "deep" / "matmul.txt", "of this"};
  {
    MatmulCache<8> cache(file);
    EXPECT_FALSE(cache.find(shape_of(3)).has_value());
    cache.insert(shape_of(3), kWords);
    cache.save();
  }
  const MatmulCache<8> cache(file);
  EXPECT_EQ(cache.size(), 1u);
  ASSERT_TRUE(cache.find(shape_of(4)).has_value());  // The same bucket.
  EXPECT_EQ(*cache.find(shape_of(4)), kWords);
  EXPECT_FALSE(cache.find(shape_of(5)).has_value());
  EXPECT_FALSE(cache.find(shape_of(4, 65)).has_value());
  EXPECT_FALSE(cache.find(shape_of(4, 64, DType::kF32)).has_value());
}

TEST(MatmulCache, IgnoresAndReplacesFilesOfOtherKernels) {
  const TemporaryFolder folder;
  TuningFile file{folder.path() / "matmul.txt", "kernels a"};
  MatmulCache<8> before(file);
  before.insert(shape_of(1), kWords);
  before.save();
  file.identity = "kernels b";
  const std::string log = logged(folder.path(), [&] {
    MatmulCache<8> cache(file);
    EXPECT_EQ(cache.size(), 0u);
    cache.insert(shape_of(2), kWords);
    cache.save();
  });
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("are not used (the file is of another"), std::string::npos) << log;
  const MatmulCache<8> after(file);
  EXPECT_EQ(after.size(), 1u);
  EXPECT_TRUE(after.find(shape_of(2)).has_value());
}

TEST(MatmulCache, IgnoresDamagedFilesWholly) {
  const TemporaryFolder folder;
  const TuningFile file{folder.path() / "matmul.txt", "of this"};
  MatmulCache<8> whole(file);
  for (const std::int64_t n : {64, 128, 192}) whole.insert(shape_of(1, n), kWords);
  whole.save();
  const std::string good = content(file.path);
  ASSERT_EQ(MatmulCache<8>(file).size(), 3u);
  std::vector<std::string> damaged{"of this\nend 1\n"};
  for (std::size_t size = 0; size < good.size() - 1; ++size)
    damaged.push_back(good.substr(0, size));
  for (const std::size_t at : {good.find("64"), good.find("192"), good.find("end")})
    damaged.push_back(std::string(good).replace(at, 1, "?"));
  for (const std::string& text : damaged) {
    std::ofstream(file.path) << text;
    const std::string log =
        logged(folder.path(), [&] { EXPECT_EQ(MatmulCache<8>(file).size(), 0u) << text; });
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << text << "\n" << log;
  }
}

TEST(MatmulCache, LosesNothingWhenManyWrite) {
  const TemporaryFolder folder;
  const TuningFile file{folder.path() / "matmul.txt", "of this"};
  constexpr int kWriters = 4, kEach = 12;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w)
    writers.emplace_back([&, w] {
      MatmulCache<3> cache(file);
      for (int i = 0; i < kEach; ++i) {
        cache.insert(shape_of(1, 1 + w * kEach + i), {1, 2});
        cache.save();
      }
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(MatmulCache<3>(file).size(), std::size_t{kWriters * kEach});
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_TRUE(entry.path().filename() == "matmul.txt" ||
                entry.path().filename() == "matmul.txt.lock")
        << entry.path();
}

TEST(MatmulCache, WarnsOnceWhereNothingCanBeKept) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "no folder";
  const std::string log = logged(folder.path(), [&] {
    MatmulCache<3> cache({folder.path() / "file" / "matmul.txt", "of this"});
    for (const std::int64_t n : {1, 2}) {
      cache.insert(shape_of(1, n), {1, 2});
      cache.save();
    }
    EXPECT_TRUE(cache.find(shape_of(1, 1)).has_value());
  });
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("set XDG_CACHE_HOME to a writable folder"), std::string::npos) << log;
}

TEST(MatmulCache, BucketsGrowWithM) {
  std::int64_t last = 0;
  for (std::int64_t m = 1; m < 40000; ++m) {
    EXPECT_GE(m_bucket(m), last);
    last = m_bucket(m);
    if (m <= 16384) {
      EXPECT_GE(last, m);
    }
  }
  EXPECT_EQ(last, 16384);
}

TEST(DecodeChoice, FollowsTheTimesThatAreKept) {
  const TemporaryFolder folder;
  TuningFile file{folder.path() / "decode.txt", "kernels a"};
  MatmulCache<3> times(file);
  // ns of the streaming and the skinny kernel (0: there is none) and of cuBLASLt; ours may be a
  // little slower, as the next kernel is part of it.
  times.insert(shape_of(1), {9000, 0, 10000});
  times.insert(shape_of(4), {13000, 13001, 10000});
  times.insert(shape_of(8), {13001, 13002, 10000});
  times.insert(shape_of(8, 128), {13001, 13000, 10000});  // too little for the skinny one
  times.insert(shape_of(8, 256), {13001, 12501, 10000});
  times.insert(shape_of(8, 512), {13001, 12500, 10000});
  times.insert(shape_of(4, 64, DType::kF32), {11500, 0, 10000});  // logits, whose best is found
  times.insert(shape_of(16), {0, 13000, 10000});
  times.insert(shape_of(32, 64, DType::kF32), {0, 10001, 10000});  // logits: nothing follows
  times.insert(shape_of(40), {0, 0, 10000});
  times.insert(shape_of(64), {0, 10000, 10000});
  times.save();
  const DecodeChoice choice(file);
  EXPECT_EQ(choice.kept(shape_of(1)), DecodeKernel::kGemv);
  EXPECT_EQ(choice.kept(shape_of(3)), DecodeKernel::kGemv);  // The bucket of 4.
  EXPECT_EQ(choice.kept(shape_of(8)), DecodeKernel::kLibrary);
  EXPECT_EQ(choice.kept(shape_of(8, 128)), DecodeKernel::kGemv);
  EXPECT_EQ(choice.kept(shape_of(8, 256)), DecodeKernel::kGemv);
  EXPECT_EQ(choice.kept(shape_of(8, 512)), DecodeKernel::kSkinny);
  EXPECT_EQ(choice.kept(shape_of(4, 64, DType::kF32)), DecodeKernel::kGemv);
  EXPECT_EQ(choice.kept(shape_of(16)), DecodeKernel::kSkinny);
  EXPECT_EQ(choice.kept(shape_of(32, 64, DType::kF32)), DecodeKernel::kLibrary);
  EXPECT_EQ(choice.kept(shape_of(40)), DecodeKernel::kLibrary);
  EXPECT_EQ(choice.kept(shape_of(64)), DecodeKernel::kSkinny);
  EXPECT_EQ(choice.kept(shape_of(2)), std::nullopt);
  file.identity = "kernels b";
  EXPECT_EQ(DecodeChoice(file).kept(shape_of(1)), std::nullopt);
}

TEST(DecodeChoice, KnowsTheKernelsOfTheBuild) {
  const std::string_view revision = cuda_revision();
  EXPECT_EQ(revision.size(), 16u);
  for (const char c : revision) EXPECT_TRUE(std::isxdigit(static_cast<unsigned char>(c))) << c;
}

TEST(TuningFile, IsOfOneMachineAndBuild) {
  const TuningMachine machine{"NVIDIA H200", "580.95.05", 132, 13000, 130100};
  const TuningFile file = tuning_file("/cache", machine, "decode", "0123456789abcdef");
  EXPECT_EQ(file.path, "/cache/decode-NVIDIA-H200-132sms-driver-580.95.05-cublaslt-130100.txt");
  EXPECT_EQ(file.identity,
            "tandem decode v4, NVIDIA-H200 of 132 SMs, driver 580.95.05, CUDA 13000, cuBLASLt "
            "130100, kernels 0123456789abcdef");
  for (auto change : {+[](TuningMachine& m) { m.gpu = "NVIDIA H100"; },
                      +[](TuningMachine& m) { m.driver = "580.95.06"; },
                      +[](TuningMachine& m) { m.num_sms = 16; },
                      +[](TuningMachine& m) { m.cublaslt = 130101; }}) {
    TuningMachine other = machine;
    change(other);
    EXPECT_NE(tuning_file("/cache", other, "decode", "0123456789abcdef").path, file.path);
  }
  TuningMachine newer = machine;
  newer.cuda = 13010;
  EXPECT_NE(tuning_file("/cache", newer, "decode", "0123456789abcdef").identity, file.identity);
  EXPECT_NE(tuning_file("/cache", machine, "decode", "0123456789abcdee").identity, file.identity);
  EXPECT_NE(tuning_file("/cache", machine, "cublaslt", "0123456789abcdef").path, file.path);
}

}  // namespace
}  // namespace tandem::kernels
