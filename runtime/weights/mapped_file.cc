// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/device/error.h"

namespace tandem::runtime {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path.string()) {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  TANDEM_REQUIRE(fd >= 0, "cannot open ", path_, " (", std::strerror(errno),
                 "): check --model and the file's permissions");
  struct stat info = {};
  void* address = MAP_FAILED;
  const bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (is_file && info.st_size > 0)
    address = mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  TANDEM_REQUIRE(is_file, path_, " is not a file: check --model");
  TANDEM_REQUIRE(info.st_size > 0, path_, " is empty: download it again");
  TANDEM_REQUIRE(address != MAP_FAILED, "cannot map ", path_, " into memory (",
                 std::strerror(error), "): check `ulimit -v`");
  data_ = static_cast<const std::byte*>(address);
  size_ = static_cast<std::size_t>(info.st_size);
  is_mapped_ = true;
}

MappedFile::~MappedFile() {
  if (is_mapped_) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release_pages() const noexcept {
  if (is_mapped_) madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

}  // namespace tandem::runtime
