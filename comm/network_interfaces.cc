// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "comm/socket.h"

namespace tandem::comm {
namespace {

bool is_bridge(const std::string& name) {
  for (const char* prefix : {"docker", "virbr", "br-", "cni", "flannel", "veth", "lxc"})
    if (name.rfind(prefix, 0) == 0) return true;
  return std::filesystem::exists("/sys/class/net/" + name + "/bridge");
}

std::int64_t speed_of(const std::string& name) {
  std::int64_t speed = 0;
  std::ifstream("/sys/class/net/" + name + "/speed") >> speed;
  return std::max<std::int64_t>(0, speed);
}

constexpr int kNowhere = 1 << 20;

/// Place of `name` in the comma-separated `list`; the list's entries are prefixes, as for NCCL.
int place_in(const std::string& list, const std::string& name) {
  std::istringstream in(list);
  std::string entry;
  for (int place = 0; std::getline(in, entry, ','); ++place) {
    if (!entry.empty() && entry[0] == '=') entry.erase(0, 1);
    if (!entry.empty() && name.rfind(entry, 0) == 0) return place;
  }
  return kNowhere;
}

}  // namespace

std::vector<NetworkInterface> network_interfaces(const std::string& preferred) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NetworkInterface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET ||
        (entry->ifa_flags & IFF_UP) == 0)
      continue;
    NetworkInterface item;
    item.name = entry->ifa_name;
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text,
                sizeof text);
    item.address = text;
    item.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    item.virtual_bridge = is_bridge(item.name);
    item.speed_mbit = speed_of(item.name);
    found.push_back(item);
  }
  const auto key = [&](const NetworkInterface& item) {
    return std::make_tuple(place_in(preferred, item.name), item.loopback, item.virtual_bridge,
                           -item.speed_mbit);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return found;
}

bool names_interface(const std::string& list, const std::string& name) {
  return place_in(list, name) != kNowhere;
}

std::string preferred_interfaces() {
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "NCCL_SOCKET_IFNAME"})
    if (const char* value = std::getenv(name); value != nullptr && value[0] != '^') return value;
  return "";
}

}  // namespace tandem::comm
