// SPDX-License-Identifier: Apache-2.0
#include "launch/network_card.h"

#include <algorithm>
#include <fstream>

#include "comm/socket.h"
#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

template <typename T>
T value_of(const std::filesystem::path& path, T fallback) {
  T value = fallback;
  std::ifstream in(path);
  return in >> value ? value : fallback;
}

void add_rdma_cards(const std::filesystem::path& root, std::vector<NetworkCard>& cards) {
  std::error_code none;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root / "infiniband", none))
    folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const auto& folder : folders) {
    // "4: ACTIVE" and "400 Gb/sec (4X NDR)"
    if (value_of<int>(folder / "ports/1/state", 0) != 4) continue;
    cards.push_back({folder.filename(), true, value_of<double>(folder / "ports/1/rate", 0),
                     value_of<int>(folder / "device/numa_node", -1)});
  }
}

}  // namespace

std::vector<NetworkCard> network_cards(const std::string& preferred,
                                       const std::filesystem::path& root) {
  std::vector<NetworkCard> cards;
  add_rdma_cards(root, cards);
  for (const comm::NetworkInterface& item : comm::network_interfaces(preferred)) {
    if (item.loopback || item.virtual_bridge) continue;
    cards.push_back({item.name, false, static_cast<double>(item.speed_mbit) / 1000,
                     value_of<int>(root / "net" / item.name / "device/numa_node", -1)});
  }
  return cards;
}

const NetworkCard* nearest_card(const std::vector<NetworkCard>& cards, int numa_node) {
  for (const NetworkCard& card : cards)
    if (card.rdma && numa_node >= 0 && card.numa_node == numa_node) return &card;
  return cards.empty() ? nullptr : &cards.front();
}

std::string describe(const NetworkCard& card) {
  return card.gbit_per_s > 0 ? concat(card.name, " ", card.gbit_per_s, " Gb/s") : card.name;
}

}  // namespace tandem::launch
