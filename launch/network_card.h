// SPDX-License-Identifier: Apache-2.0
// Network cards of this host, from sysfs: which one a rank should use, and how fast it is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::launch {

struct NetworkCard {
  std::string name;  ///< mlx5_0 (InfiniBand, RoCE) or eth0
  bool rdma = false;
  double gbit_per_s = 0;  ///< 0: unknown
  int numa_node = -1;
};

/// Active RDMA ports first, then interfaces with an address that lead to other hosts, in the order
/// of `comm::network_interfaces(preferred)`.
std::vector<NetworkCard> network_cards(const std::string& preferred,
                                       const std::filesystem::path& root = "/sys/class");

/// The first RDMA card of `numa_node`, else the first card; null when there is none.
const NetworkCard* nearest_card(const std::vector<NetworkCard>& cards, int numa_node);

/// "mlx5_0 400 Gb/s"
std::string describe(const NetworkCard& card);

}  // namespace tandem::launch
