// SPDX-License-Identifier: Apache-2.0
#include "launch/placement.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "comm/socket.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "launch/cpu_binding.h"
#include "launch/network_card.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

int numa_node_of_gpu(std::string pci_bus_id) {
  std::transform(pci_bus_id.begin(), pci_bus_id.end(), pci_bus_id.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  int node = -1;
  std::ifstream in(concat("/sys/bus/pci/devices/", pci_bus_id, "/numa_node"));
  return in >> node ? node : -1;
}

/// What the exchange before the binding carries, and the whole place after it.
json::object to_object(const Place& place) {
  const json::array cpus(place.cpus.begin(), place.cpus.end());
  const json::array peers(place.peer_uuids.begin(), place.peer_uuids.end());
  const json::array nvlink(place.nvlink_uuids.begin(), place.nvlink_uuids.end());
  return {{"rank", place.rank},
          {"local_rank", place.local_rank},
          {"host", place.host},
          {"gpu", place.gpu},
          {"gpu_name", place.gpu_name},
          {"gpu_uuid", place.gpu_uuid},
          {"numa_node", place.numa_node},
          {"cpus", cpus},
          {"cores", place.cores},
          {"nic", place.nic},
          {"peers", peers},
          {"nvlink", nvlink}};
}

Place from_text(const std::string& text) {
  const json::value value = json::parse(text);
  Place place;
  place.rank = static_cast<int>(value.at("rank").as_int64());
  place.local_rank = static_cast<int>(value.at("local_rank").as_int64());
  place.host = value.at("host").as_string().c_str();
  place.gpu = static_cast<int>(value.at("gpu").as_int64());
  place.gpu_name = value.at("gpu_name").as_string().c_str();
  place.gpu_uuid = value.at("gpu_uuid").as_string().c_str();
  place.numa_node = static_cast<int>(value.at("numa_node").as_int64());
  for (const json::value& cpu : value.at("cpus").as_array())
    place.cpus.push_back(static_cast<int>(cpu.as_int64()));
  place.cores = static_cast<int>(value.at("cores").as_int64());
  place.nic = value.at("nic").as_string().c_str();
  for (const json::value& peer : value.at("peers").as_array())
    place.peer_uuids.emplace_back(peer.as_string().c_str());
  for (const json::value& peer : value.at("nvlink").as_array())
    place.nvlink_uuids.emplace_back(peer.as_string().c_str());
  return place;
}

std::vector<Place> exchange(comm::ControlPlane& control, const Place& mine) {
  std::vector<Place> places;
  for (const std::string& text : control.all_gather(json::serialize(to_object(mine))))
    places.push_back(from_text(text));
  return places;
}

void take_gpu(const DeviceReport& devices, int ordinal, Place& mine) {
  const DeviceInfo& info = devices.devices[static_cast<std::size_t>(ordinal)];
  mine.gpu = ordinal;
  mine.gpu_name = info.name;
  mine.gpu_uuid = info.uuid;
  mine.numa_node = numa_node_of_gpu(info.pci_bus_id);
  for (std::size_t peer = 0; peer < info.peer_access.size(); ++peer) {
    if (info.peer_access[peer]) mine.peer_uuids.push_back(devices.devices[peer].uuid);
    if (info.nvlink[peer]) mine.nvlink_uuids.push_back(devices.devices[peer].uuid);
  }
}

/// Binds this process to its share; `allowed` is what each rank of the job may use.
void bind_to_share(const std::vector<Place>& allowed, bool keep_binding, Place& mine) {
  const auto topology = read_topology();
  if (keep_binding) {
    mine.cpus = affinity_of(0);
  } else {
    std::vector<std::vector<int>> cpus;
    std::vector<int> nodes;
    int local_rank = 0;
    for (const Place& other : allowed) {
      if (other.host != mine.host) continue;
      if (other.rank == mine.rank) local_rank = static_cast<int>(cpus.size());
      cpus.push_back(other.cpus);
      nodes.push_back(other.numa_node);
    }
    mine.cpus = share_of_cpus(topology, cpus, nodes, local_rank);
    if (!bind_to(mine.cpus)) {
      log_warn("cannot bind to CPUs ", cpu_list_text(mine.cpus),
               "; staying on those of the launcher");
      mine.cpus = affinity_of(0);
    }
  }
  mine.cores = count_cores(topology, mine.cpus);
}

}  // namespace

int choose_gpu(const DeviceReport& devices, int local_rank, int local_size, bool allow_shared) {
  TANDEM_REQUIRE(devices.problem.empty() && !devices.devices.empty(),
                 devices.problem.empty() ? "no GPU is visible: use --device cpu" : devices.problem);
  const int count = static_cast<int>(devices.devices.size());
  // One visible GPU per task is Slurm's --gpus-per-task: it may be a different one for each, which
  // the exchange of UUIDs finds out.
  TANDEM_REQUIRE(count == 1 || local_size <= count || allow_shared, local_size,
                 " ranks on this host but ", count, " GPUs are visible; start ", count,
                 " ranks per host, or add --allow-shared-gpu to test with several ranks on one");
  const int ordinal = local_rank % count;
  const DeviceInfo& info = devices.devices[static_cast<std::size_t>(ordinal)];
  TANDEM_REQUIRE(info.unusable_because.empty(), info.unusable_because);
  return ordinal;
}

std::vector<Place> place_ranks(const comm::MpiSession& session, comm::ControlPlane& control,
                               const DeviceReport& devices, const PlacementOptions& options) {
  Place mine;
  control.together([&] {
    mine.rank = session.rank();
    mine.local_rank = session.local_rank();
    mine.host = session.host();
    mine.cpus = allowed_cpus();
    if (options.cuda)
      take_gpu(
          devices,
          choose_gpu(devices, session.local_rank(), session.local_size(), options.allow_shared_gpu),
          mine);
    const auto cards = network_cards(options.interfaces.empty() ? comm::preferred_interfaces()
                                                                : options.interfaces);
    if (const NetworkCard* card = nearest_card(cards, mine.numa_node)) mine.nic = describe(*card);
  });
  bind_to_share(exchange(control, mine), options.keep_binding, mine);
  std::vector<Place> places = exchange(control, mine);
  for (Place& place : places) {
    const auto sharing = std::count_if(places.begin(), places.end(), [&](const Place& other) {
      return other.host == place.host && other.cpus == place.cpus;
    });
    place.threads = std::max(1, place.cores / static_cast<int>(sharing));
  }
  if (!options.allow_shared_gpu) refuse_shared_gpus(places);
  return places;
}

void refuse_shared_gpus(const std::vector<Place>& places) {
  for (std::size_t b = 0; b < places.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      TANDEM_REQUIRE(
          places[b].gpu < 0 || places[a].gpu_uuid != places[b].gpu_uuid, "ranks ", a, " and ", b,
          " both have GPU ", places[b].gpu_uuid, " on host ", places[b].host,
          "; give each rank its own (all GPUs visible to all ranks, or srun --gpus-per-task=1), or "
          "add --allow-shared-gpu to test with several ranks on one");
}

json::array to_json(const std::vector<Place>& places) {
  json::array list;
  for (const Place& place : places) list.push_back(to_object(place));
  return list;
}

std::string link_between(const Place& a, const Place& b) {
  if (a.host != b.host) return "network";
  if (a.gpu < 0 || b.gpu < 0) return "shared memory";
  if (a.gpu_uuid == b.gpu_uuid) return "same GPU";
  const auto lists_b = [&b](const std::vector<std::string>& uuids) {
    return std::find(uuids.begin(), uuids.end(), b.gpu_uuid) != uuids.end();
  };
  if (lists_b(a.nvlink_uuids)) return "NVLink";
  return lists_b(a.peer_uuids) ? "PCIe peer access" : "through the host";
}

std::string placement_table(const std::vector<Place>& places) {
  std::vector<std::vector<std::string>> rows{
      {"rank", "host", "device", "numa", "cores", "cpus", "nic", "links"}};
  for (const Place& place : places) {
    // Ranks reached the same way, together: "1: shared memory; 2, 3: network".
    std::vector<std::pair<std::string, std::string>> links;
    for (const Place& other : places) {
      if (other.rank == place.rank) continue;
      const std::string link = link_between(place, other);
      auto found = std::find_if(links.begin(), links.end(),
                                [&](const auto& entry) { return entry.first == link; });
      if (found == links.end())
        links.emplace_back(link, std::to_string(other.rank));
      else
        found->second += concat(", ", other.rank);
    }
    std::string text;
    for (const auto& [link, ranks] : links)
      text += concat(text.empty() ? "" : "; ", ranks, ": ", link);
    rows.push_back({std::to_string(place.rank), place.host,
                    place.gpu < 0 ? "cpu" : concat("GPU ", place.gpu, " ", place.gpu_name),
                    place.numa_node < 0 ? "-" : std::to_string(place.numa_node),
                    std::to_string(place.cores), cpu_list_text(place.cpus),
                    place.nic.empty() ? "-" : place.nic, text.empty() ? "-" : text});
  }
  return text_table(rows);
}

}  // namespace tandem::launch
