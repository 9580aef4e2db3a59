// SPDX-License-Identifier: Apache-2.0
#include "launch/host_checks.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

using Facts = std::vector<HostFacts>;

std::string gib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// Hosts for which `bad` holds, each once.
template <typename Bad>
std::vector<std::string> hosts_with(const Facts& facts, Bad bad) {
  std::vector<std::string> hosts;
  for (const HostFacts& item : facts)
    if (bad(item) && std::find(hosts.begin(), hosts.end(), item.host) == hosts.end())
      hosts.push_back(item.host);
  return hosts;
}

/// Green with `good`, or `health` naming the hosts.
template <typename Bad>
Check judge_hosts(const Facts& facts, const char* topic, Bad bad, Health health,
                  const std::string& good, const std::string& wrong, const std::string& fix) {
  const auto hosts = hosts_with(facts, bad);
  if (hosts.empty()) return {topic, Health::kGreen, good, ""};
  return {topic, health, wrong + " on " + join(hosts), fix};
}

Check ranks_check(const Facts& facts) {
  const auto hosts = hosts_with(facts, [](const HostFacts&) { return true; });
  Check check{"ranks", Health::kGreen,
              concat(facts.size(), facts.size() == 1 ? " rank" : " ranks", " on ", hosts.size(),
                     hosts.size() == 1 ? " host: " : " hosts: ", join(hosts)),
              ""};
  const auto tasks = facts[0].environment.find("SLURM_NTASKS");
  if (facts.size() == 1 && tasks != facts[0].environment.end() && tasks->second != "1") {
    check.health = Health::kYellow;
    check.fix =
        "start all tasks of the allocation: srun --mpi=pmix -n " + tasks->second + " tandem doctor";
  }
  std::map<std::string, std::set<std::string>> machines;
  for (const HostFacts& item : facts) machines[item.host].insert(item.boot_id);
  for (const auto& [host, boots] : machines)
    if (boots.size() > 1) {
      check.health = Health::kRed;
      check.detail += concat("; ", boots.size(), " machines call themselves ", host);
      check.fix = "give every machine (or container: docker run --hostname) its own host name";
    }
  return check;
}

/// Every version that some rank knows: equal on all, or who differs.
std::vector<Check> version_checks(const Facts& facts) {
  std::set<std::string> names;
  for (const HostFacts& item : facts)
    for (const auto& entry : item.versions) names.insert(entry.first);
  std::vector<Check> checks;
  for (const std::string& name : names) {
    std::map<std::string, std::vector<std::string>> users;
    for (const HostFacts& item : facts) {
      const auto found = item.versions.find(name);
      users[found == item.versions.end() ? "none" : found->second].push_back(
          concat("rank ", item.rank));
    }
    if (users.size() == 1) {
      checks.push_back({name, Health::kGreen,
                        users.begin()->first + (facts.size() > 1 ? " on all ranks" : ""), ""});
      continue;
    }
    std::string detail;
    for (const auto& [version, ranks] : users)
      detail += concat(detail.empty() ? "" : "; ", version, ": ", join(ranks));
    const bool fatal = name == "tandem" || name == "MPI" || name == "NCCL";
    checks.push_back({name, fatal ? Health::kRed : Health::kYellow, detail,
                      "install the same version of " + name + " on every host"});
  }
  return checks;
}

Check shared_memory_check(const Facts& facts) {
  // Open MPI needs 4 MiB a rank, NCCL some 10 MiB a peer; Docker gives 64 MiB in all.
  constexpr std::int64_t kEnough = std::int64_t{256} << 20;
  std::int64_t least = facts[0].shm_free_bytes;
  for (const HostFacts& item : facts) least = std::min(least, item.shm_free_bytes);
  return judge_hosts(
      facts, "/dev/shm",
      [](const HostFacts& item) { return item.ranks_on_host > 1 && item.shm_free_bytes < kEnough; },
      least < (std::int64_t{32} << 20) ? Health::kRed : Health::kYellow,
      "at least " + gib(least) + " free", "less than 256 MiB free",
      "docker run --ipc=host (or --shm-size=8g); else: mount -o remount,size=8g /dev/shm");
}

std::vector<Check> limit_checks(const Facts& facts) {
  constexpr std::int64_t kMemlock = std::int64_t{1} << 30, kFiles = 4096, kStack = 8 << 20;
  const auto below = [](std::int64_t value, std::int64_t least) {
    return value >= 0 && value < least;
  };
  return {
      judge_hosts(
          facts, "memlock",
          [&](const HostFacts& item) { return item.rdma && below(item.memlock_bytes, kMemlock); },
          Health::kRed, "enough for this host's network",
          "an RDMA card but less than 1 GiB may be locked",
          "ulimit -l unlimited (docker run --ulimit memlock=-1; Slurm: "
          "PropagateResourceLimitsExcept=MEMLOCK and LimitMEMLOCK=infinity for slurmd)"),
      judge_hosts(
          facts, "open files",
          [&](const HostFacts& item) { return below(item.open_files, kFiles); }, Health::kYellow,
          "at least 4096 allowed", "fewer than 4096 allowed", "ulimit -n 65536"),
      judge_hosts(
          facts, "stack", [&](const HostFacts& item) { return below(item.stack_bytes, kStack); },
          Health::kYellow, "at least 8 MiB allowed", "less than 8 MiB allowed",
          "ulimit -s 8192 (docker run --ulimit stack=67108864)")};
}

std::vector<Check> network_checks(const Facts& facts) {
  const auto hosts = hosts_with(facts, [](const HostFacts&) { return true; });
  if (hosts.size() == 1) return {};
  std::vector<std::string> seen;
  for (const HostFacts& item : facts) {
    const std::string text = item.host + " (" + join(item.interfaces) + ")";
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(text);
  }
  Check check{"interfaces", Health::kGreen, join(seen), ""};
  const auto unnamed = [](const HostFacts& item) {
    return !item.bridges.empty() && item.environment.count("OMPI_MCA_btl_tcp_if_include") == 0;
  };
  if (const auto bad = hosts_with(facts, unnamed); !bad.empty()) {
    check.health = Health::kYellow;
    check.detail += "; container bridges on " + join(bad) + ", which MPI and NCCL may try";
    check.fix =
        "name the network between the hosts: export OMPI_MCA_btl_tcp_if_include=eth0 "
        "OMPI_MCA_oob_tcp_if_include=eth0 NCCL_SOCKET_IFNAME=eth0";
  }
  return {check};
}

/// "GPU 0 and GPU 1 of host": pairs of all hosts, each once.
std::string pairs_of(const Facts& facts, std::vector<std::string> HostFacts::*list) {
  std::set<std::string> pairs;
  for (const HostFacts& item : facts)
    for (const std::string& pair : item.*list) pairs.insert(pair + " of " + item.host);
  return join({pairs.begin(), pairs.end()});
}

Check peer_check(const Facts& facts) {
  const std::string none = pairs_of(facts, &HostFacts::no_peer_access);
  const std::string pcie = pairs_of(facts, &HostFacts::pcie_peers);
  if (!none.empty())
    return {"peer access", Health::kYellow, "none between " + none,
            "switch off ACS and the IOMMU (BIOS or iommu=off); else all-reduces go through the "
            "host"};
  return {"peer access", Health::kGreen,
          pcie.empty() ? "between all visible GPUs, over NVLink"
                       : "between all visible GPUs, over PCIe between " + pcie,
          ""};
}

std::vector<Check> gpu_checks(const Facts& facts) {
  std::vector<Check> checks;
  std::set<std::string> gpus;
  std::string problem;
  for (const HostFacts& item : facts) {
    gpus.insert(item.gpus.begin(), item.gpus.end());
    if (problem.empty() && !item.gpu_problem.empty())
      problem = concat("rank ", item.rank, " (host ", item.host, "): ", item.gpu_problem);
  }
  if (problem.empty())
    checks.push_back({"GPUs", Health::kGreen, concat(gpus.size(), " visible in all"), ""});
  else
    checks.push_back({"GPUs", Health::kRed, problem,
                      "nvidia-smi shows what the driver sees; or use --device cpu"});
  if (gpus.size() > 1) checks.push_back(peer_check(facts));
  checks.push_back(judge_hosts(
      facts, "NCCL copies", [](const HostFacts& item) { return item.nccl_libraries.size() > 1; },
      Health::kRed, "not more than one", "two copies of libnccl in one process",
      "remove all but one from LD_LIBRARY_PATH and LD_PRELOAD"));
  return checks;
}

}  // namespace

std::vector<Check> check_hosts(const Facts& facts, bool want_cuda) {
  std::vector<Check> checks{ranks_check(facts)};
  const auto add = [&checks](const std::vector<Check>& more) {
    checks.insert(checks.end(), more.begin(), more.end());
  };
  add(version_checks(facts));
  checks.push_back(judge_hosts(
      facts, "cores", [](const HostFacts& item) { return item.ranks_on_host > item.cores; },
      Health::kYellow, "at least one per rank", "more ranks than cores",
      "start fewer ranks per host; more only make sense for tests"));
  checks.push_back(shared_memory_check(facts));
  std::set<std::string> stale;
  for (const HostFacts& item : facts)
    stale.insert(item.stale_shared_files.begin(), item.stale_shared_files.end());
  checks.push_back(judge_hosts(
      facts, "left-overs", [](const HostFacts& item) { return !item.stale_shared_files.empty(); },
      Health::kYellow, "none of earlier jobs", "shared memory of ended jobs",
      "rm " + join({stale.begin(), stale.end()})));
  add(limit_checks(facts));
  add(network_checks(facts));
  if (want_cuda) add(gpu_checks(facts));
  return checks;
}

Check check_bandwidth(const std::vector<CollectiveRow>& rows, const std::string& link,
                      double expected_gbyte_per_s) {
  double best = 0;
  for (const CollectiveRow& row : rows) best = std::max(best, row.bus_gbyte_per_s);
  char text[160];
  if (expected_gbyte_per_s <= 0) {
    std::snprintf(text, sizeof text, "%.3g GB/s at best over %s", best, link.c_str());
    return {"bandwidth", Health::kGreen, text, ""};
  }
  std::snprintf(text, sizeof text, "%.3g GB/s at best over %s, which should give %.3g", best,
                link.c_str(), expected_gbyte_per_s);
  if (best >= 0.3 * expected_gbyte_per_s) return {"bandwidth", Health::kGreen, text, ""};
  return {"bandwidth", Health::kYellow, text,
          "see which network is used: NCCL_DEBUG=INFO shows NET/IB or NET/Socket; name it with "
          "--interface and NCCL_IB_HCA"};
}

}  // namespace tandem::launch
