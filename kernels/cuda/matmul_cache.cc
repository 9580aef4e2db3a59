// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::kernels {
namespace {

constexpr std::chrono::milliseconds kLockPatience{5000};
constexpr const char* kEnd = "end";  // the last line's first word: without it the file is cut off

MatmulShape bucketed(MatmulShape shape) {
  shape.m = m_bucket(shape.m);
  return shape;
}

template <std::size_t kWords>
void print(std::ostream& out, const MatmulShape& shape,
           const std::array<std::uint64_t, kWords>& words) {
  out << shape.m << ' ' << shape.n << ' ' << shape.k << ' ' << shape.x_stride << ' '
      << shape.y_stride << ' ' << static_cast<int>(shape.in) << ' ' << static_cast<int>(shape.out)
      << ' ' << shape.alignment_bytes << ' ' << shape.adds << ' ' << shape.sm_target;
  for (const std::uint64_t word : words) out << ' ' << word;
  out << '\n';
}

template <std::size_t kWords>
bool parse(const std::string& line, MatmulShape& shape, std::array<std::uint64_t, kWords>& words) {
  std::istringstream in(line);
  int type_in = 0, type_out = 0;
  in >> shape.m >> shape.n >> shape.k >> shape.x_stride >> shape.y_stride >> type_in >> type_out >>
      shape.alignment_bytes >> shape.adds >> shape.sm_target;
  for (std::uint64_t& word : words) in >> word;
  if (!in || type_in < 0 || type_in > 2 || type_out < 0 || type_out > 2) return false;
  shape.in = static_cast<DType>(type_in);
  shape.out = static_cast<DType>(type_out);
  std::string rest;
  return !(in >> rest);
}

/// Held by one process at a time as far as the file system can do that; where it cannot, or when
/// the holder does not let go, an entry may have to be timed again, no more.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    const auto end = std::chrono::steady_clock::now() + kLockPatience;
    while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace

std::int64_t m_bucket(std::int64_t m) {
  const auto up = [m](std::int64_t unit) { return (m + unit - 1) / unit * unit; };
  if (m <= 2) return m;
  if (m <= 8) return m <= 4 ? 4 : 8;
  if (m <= 64) return up(8);
  if (m <= 512) return up(32);  // the columns of tiles differ by so many
  if (m <= 1024) return up(128);
  if (m <= 4096) return up(512);
  return std::min<std::int64_t>(up(2048), 16384);
}

template <std::size_t kWords>
MatmulCache<kWords>::MatmulCache(TuningFile file) : file_(std::move(file)) {
  std::string problem;
  if (auto kept = read(problem)) entries_ = std::move(*kept);
  if (!problem.empty())
    log_info("times of matmuls in ", file_.path.string(), " are not used (", problem,
             "): they are taken again");
}

template <std::size_t kWords>
auto MatmulCache<kWords>::read(std::string& problem) const -> std::optional<Entries> {
  std::ifstream in(file_.path);
  if (!in) return std::nullopt;
  Entries entries;
  std::string line;
  std::getline(in, line);
  if (line != file_.identity) {
    problem = "the file is of another driver, library or build, or damaged";
    return std::nullopt;
  }
  while (std::getline(in, line)) {
    if (line == concat(kEnd, " ", entries.size())) return entries;
    MatmulShape shape;
    Words words{};
    if (!parse<kWords>(line, shape, words)) break;
    entries.try_emplace(shape, words);
  }
  problem = concat("the file is damaged after ", entries.size(), " entries");
  return std::nullopt;
}

template <std::size_t kWords>
auto MatmulCache<kWords>::find(const MatmulShape& shape) const -> std::optional<Words> {
  const auto entry = entries_.find(bucketed(shape));
  if (entry == entries_.end()) return std::nullopt;
  return entry->second;
}

template <std::size_t kWords>
void MatmulCache<kWords>::insert(const MatmulShape& shape, const Words& words) {
  entries_[bucketed(shape)] = words;
  dirty_ = true;
}

template <std::size_t kWords>
std::string MatmulCache<kWords>::write() const {
  std::string fresh = file_.path.string() + ".XXXXXX";
  const int descriptor = ::mkstemp(fresh.data());
  if (descriptor < 0) return std::strerror(errno);
  ::fchmod(descriptor, 0644);  // users of a shared folder read each other's
  ::close(descriptor);
  std::error_code error;
  std::ofstream out(fresh);
  out << file_.identity << '\n';
  for (const auto& [shape, words] : entries_) print<kWords>(out, shape, words);
  out << kEnd << ' ' << entries_.size() << '\n';
  out.close();
  if (!out) error = std::make_error_code(std::errc::no_space_on_device);
  if (!error) std::filesystem::rename(fresh, file_.path, error);
  if (!error) return {};
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  return error.message();
}

template <std::size_t kWords>
void MatmulCache<kWords>::save() {
  if (!dirty_) return;
  dirty_ = false;
  std::error_code error;
  std::filesystem::create_directories(file_.path.parent_path(), error);
  const FileLock lock(file_.path.string() + ".lock");
  std::string problem;
  if (auto kept = read(problem)) entries_.merge(*kept);
  problem = write();
  if (problem.empty() || warned_) return;
  warned_ = true;
  log_warn("times of matmuls cannot be kept in ", file_.path.string(), " (", problem,
           "): the next start takes them again; set XDG_CACHE_HOME to a writable folder");
}

template class MatmulCache<3>;
template class MatmulCache<8>;

std::filesystem::path default_cache_folder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return std::filesystem::path(xdg) / "tandem";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".cache" / "tandem";
  std::error_code error;
  return std::filesystem::temp_directory_path(error) / "tandem";
}

}  // namespace tandem::kernels
