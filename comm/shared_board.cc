// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "comm/mpi_wait.h"
#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

/// A count per pair of cache lines: processors fetch two at a time.
constexpr std::size_t kCountBytes = 128;

std::size_t counts_bytes(int ranks) {
  constexpr std::size_t kPage = 4096;
  return (static_cast<std::size_t>(ranks) * kCountBytes + kPage - 1) / kPage * kPage;
}

std::size_t board_bytes(int ranks) {
  return counts_bytes(ranks) + 2 * static_cast<std::size_t>(ranks) * SharedBoard::kSlotBytes;
}

std::atomic_ref<std::uint64_t> count_of(std::byte* memory, int rank) {
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
  std::byte* at = memory + static_cast<std::size_t>(rank) * kCountBytes;
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// A name that no other job has: random, so that a rank of another host finds nothing.
std::string new_name() {
  std::random_device random;
  std::string name = "/tandem-";
  for (int i = 0; i < 4; ++i) name += std::to_string(random()) + (i < 3 ? "-" : "");
  return name;
}

/// Null when that fails; `create` makes the memory, of zeros, with all its pages.
void* map_board(const std::string& name, std::size_t size_bytes, bool create) {
  const int file = ::shm_open(name.c_str(), O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (!create || ::posix_fallocate(file, 0, static_cast<off_t>(size_bytes)) == 0)
    memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory != MAP_FAILED) return memory;
  if (create) ::shm_unlink(name.c_str());
  return nullptr;
}

}  // namespace

SharedBoard::SharedBoard(void* memory, std::size_t size_bytes, int rank, int ranks)
    : memory_(static_cast<std::byte*>(memory)),
      size_bytes_(size_bytes),
      rank_(rank),
      ranks_(ranks),
      looks_(ranks <= ::sysconf(_SC_NPROCESSORS_ONLN) ? 512 : 1) {}

std::unique_ptr<SharedBoard> SharedBoard::create(ControlPlane& control) {
  const bool first = control.rank() == 0;
  const std::size_t size_bytes = board_bytes(control.size());
  void* memory = nullptr;
  std::string name;
  if (first) {
    name = new_name();
    memory = map_board(name, size_bytes, true);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(name.data());
  std::vector<std::byte> bytes(begin, begin + name.size());
  control.broadcast(bytes);
  if (!first) {
    name.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    memory = map_board(name, size_bytes, false);
  }
  const bool all = control.min(memory != nullptr ? 1 : 0) == 1;
  if (first && memory != nullptr) ::shm_unlink(name.c_str());
  if (all)
    return std::unique_ptr<SharedBoard>(
        new SharedBoard(memory, size_bytes, control.rank(), control.size()));
  if (memory != nullptr) ::munmap(memory, size_bytes);
  return nullptr;
}

SharedBoard::~SharedBoard() { ::munmap(memory_, size_bytes_); }

const std::byte* SharedBoard::exchange(const void* mine, std::int64_t size_bytes) {
  TANDEM_ASSERT(size_bytes >= 0 && size_bytes <= kSlotBytes, size_bytes, " bytes in one slot");
  std::byte* slots = memory_ + counts_bytes(ranks_) +
                     exchanges_ % 2 * static_cast<std::size_t>(ranks_) * kSlotBytes;
  std::copy_n(static_cast<const std::byte*>(mine), size_bytes,
              slots + static_cast<std::size_t>(rank_) * kSlotBytes);
  // Whoever has counted this exchange has done with the one before it, whose slots come next.
  count_of(memory_, rank_).store(++exchanges_, std::memory_order_release);
  for (int peer = 0; peer < ranks_; ++peer)
    wait_until(
        [&] {
          for (int i = 0; i < looks_; ++i) {
            if (count_of(memory_, peer).load(std::memory_order_acquire) >= exchanges_) return true;
            relax();
          }
          return false;
        },
        kDataWait);
  return slots;
}

}  // namespace tandem::comm
