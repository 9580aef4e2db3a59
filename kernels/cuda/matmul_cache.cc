// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::kernels {
namespace {

MatmulShape bucketed(MatmulShape shape) {
  shape.m = m_bucket(shape.m);
  return shape;
}

void print(std::ostream& out, const MatmulShape& shape, const MatmulCache::Algorithm& algorithm) {
  out << std::dec << shape.m << ' ' << shape.n << ' ' << shape.k << ' ' << shape.x_stride << ' '
      << shape.y_stride << ' ' << static_cast<int>(shape.in) << ' ' << static_cast<int>(shape.out)
      << ' ' << shape.alignment_bytes << ' ' << shape.adds << ' ' << shape.sm_target << std::hex;
  for (const std::uint64_t word : algorithm) out << ' ' << word;
  out << '\n';
}

bool parse(const std::string& line, MatmulShape& shape, MatmulCache::Algorithm& algorithm) {
  std::istringstream in(line);
  int type_in = 0, type_out = 0;
  in >> shape.m >> shape.n >> shape.k >> shape.x_stride >> shape.y_stride >> type_in >> type_out >>
      shape.alignment_bytes >> shape.adds >> shape.sm_target >> std::hex;
  for (std::uint64_t& word : algorithm) in >> word;
  if (!in || type_in < 0 || type_in > 2 || type_out < 0 || type_out > 2) return false;
  shape.in = static_cast<DType>(type_in);
  shape.out = static_cast<DType>(type_out);
  std::string rest;
  return !(in >> rest);
}

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

MatmulCache::MatmulCache(std::filesystem::path file) : file_(std::move(file)) { read(); }

void MatmulCache::read() {
  std::ifstream in(file_);
  std::string line;
  while (std::getline(in, line)) {
    MatmulShape shape;
    Algorithm algorithm{};
    if (parse(line, shape, algorithm)) entries_.try_emplace(shape, algorithm);
  }
}

std::optional<MatmulCache::Algorithm> MatmulCache::find(const MatmulShape& shape) const {
  const auto entry = entries_.find(bucketed(shape));
  if (entry == entries_.end()) return std::nullopt;
  return entry->second;
}

void MatmulCache::insert(const MatmulShape& shape, const Algorithm& algorithm) {
  entries_[bucketed(shape)] = algorithm;
  dirty_ = true;
}

void MatmulCache::save() {
  if (!dirty_) return;
  dirty_ = false;
  read();
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  const std::filesystem::path fresh = file_.string() + "." + std::to_string(::getpid());
  {
    std::ofstream out(fresh);
    for (const auto& [shape, algorithm] : entries_) print(out, shape, algorithm);
    if (!out.flush()) {
      log_warn("matmul timings cannot be kept in ", file_.string(),
               ": the next start times again; set XDG_CACHE_HOME to a writable folder");
      return;
    }
  }
  std::filesystem::rename(fresh, file_, error);
}

std::filesystem::path default_cache_folder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return std::filesystem::path(xdg) / "tandem";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".cache" / "tandem";
  std::error_code error;
  return std::filesystem::temp_directory_path(error) / "tandem";
}

}  // namespace tandem::kernels
