// SPDX-License-Identifier: Apache-2.0
// Owns one captured CUDA graph and its executable. Captured on the compute stream in thread-local
// mode, so that a helper thread may map memory meanwhile; the comm stream joins by events.
// Destroy graphs before the communicators whose collectives they hold. Move-only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/device/cuda/context.h"

namespace tandem {

/// Memory sync domain of one kernel node, frozen at capture.
struct KernelDomain {
  std::string kernel;  ///< Mangled name.
  bool remote = false;
  int physical = 0;
};

template <>
class Graph<Cuda> {
 public:
  /// Runs `body`, which enqueues on `ctx.compute()` (and on streams joined to it by events, and
  /// joined back before it returns); records instead of executing. When `body` throws, the capture
  /// is ended and the exception passes on. Allocates; call at start-up.
  static Graph capture(Context<Cuda>& ctx, const std::function<void()>& body);

  Graph() = default;
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  /// Enqueues all of it; memory sync domains are those of the capture, not of `stream`.
  void launch(Stream<Cuda>& stream);
  explicit operator bool() const { return executable_ != nullptr; }

  /// Every kernel node, child graphs included.
  std::vector<KernelDomain> kernel_domains() const;
  /// InternalError naming the first kernel outside `physical`; NCCL's kernels (and other remote
  /// ones) must be in `physical_remote`.
  void require_domains(int physical, int physical_remote) const;

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace tandem
