// SPDX-License-Identifier: Apache-2.0
#include "launch/cpu_binding.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

/// First word of a file, "" when it cannot be read.
std::string word_of(const std::filesystem::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

int number_of(const std::filesystem::path& path, int fallback) {
  const std::string word = word_of(path);
  return word.empty() ? fallback : std::atoi(word.c_str());
}

/// CPUs of one core are neighbours: (node, core) order.
std::vector<std::vector<int>> cores_of(const std::vector<CpuInfo>& topology,
                                       const std::vector<int>& allowed, int node) {
  std::vector<std::vector<int>> cores;
  int last = -1;
  for (const CpuInfo& info : topology) {
    if (node >= 0 && info.node != node) continue;
    if (std::find(allowed.begin(), allowed.end(), info.cpu) == allowed.end()) continue;
    if (cores.empty() || info.core != last) cores.emplace_back();
    cores.back().push_back(info.cpu);
    last = info.core;
  }
  return cores;
}

}  // namespace

std::vector<CpuInfo> read_topology(const std::filesystem::path& root) {
  std::vector<CpuInfo> topology;
  for (const int cpu : parse_cpu_list(word_of(root / "cpu/online"))) {
    const auto folder = root / concat("cpu/cpu", cpu, "/topology");
    const int package = number_of(folder / "physical_package_id", 0);
    topology.push_back({cpu, package * 100000 + number_of(folder / "core_id", cpu), 0});
  }
  for (const int node : parse_cpu_list(word_of(root / "node/online"))) {
    const auto cpus = parse_cpu_list(word_of(root / concat("node/node", node, "/cpulist")));
    for (CpuInfo& info : topology)
      if (std::find(cpus.begin(), cpus.end(), info.cpu) != cpus.end()) info.node = node;
  }
  std::sort(topology.begin(), topology.end(), [](const CpuInfo& a, const CpuInfo& b) {
    return std::tie(a.node, a.core, a.cpu) < std::tie(b.node, b.core, b.cpu);
  });
  return topology;
}

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    if (part.empty()) continue;
    const int first = std::atoi(part.c_str());
    const auto dash = part.find('-');
    const int last = dash == std::string::npos ? first : std::atoi(part.c_str() + dash + 1);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::vector<int> sorted = cpus;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    text += concat(text.empty() ? "" : ",", sorted[i]);
    if (end > i + 1) text += concat("-", sorted[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> affinity_of(int pid) {
  // Larger than cpu_set_t: hosts with more than 1024 CPUs exist.
  constexpr int kMaxCpus = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxCpus);
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCpus);
  std::vector<int> cpus;
  if (set != nullptr && ::sched_getaffinity(pid, size, set) == 0)
    for (int cpu = 0; cpu < kMaxCpus; ++cpu)
      if (CPU_ISSET_S(cpu, size, set)) cpus.push_back(cpu);
  CPU_FREE(set);
  return cpus;
}

std::vector<int> allowed_cpus() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
    const std::string parent = word_of(concat("/proc/", ::getppid(), "/comm"));
    for (const char* launcher : {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"})
      if (parent.rfind(launcher, 0) == 0) return affinity_of(::getppid());
  }
  return affinity_of(0);
}

std::vector<int> share_of_cpus(const std::vector<CpuInfo>& topology,
                               const std::vector<std::vector<int>>& allowed,
                               const std::vector<int>& nodes, int local_rank) {
  const auto self = static_cast<std::size_t>(local_rank);
  TANDEM_ASSERT(self < allowed.size() && allowed.size() == nodes.size(), local_rank);
  for (const auto& other : allowed)
    if (other != allowed[0]) return allowed[self];
  int node = nodes[self];
  auto cores = cores_of(topology, allowed[self], node);
  if (cores.empty()) {
    node = -1;
    cores = cores_of(topology, allowed[self], node);
  }
  // The ranks that divide these cores: those next to the same node, or all.
  std::size_t ranks = 0, place = 0;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    if (node >= 0 && nodes[r] != node) continue;
    if (r < self) ++place;
    ++ranks;
  }
  const bool crowded = cores.size() < ranks;
  const std::size_t begin = crowded ? 0 : place * cores.size() / ranks;
  const std::size_t end = crowded ? cores.size() : (place + 1) * cores.size() / ranks;
  std::vector<int> cpus;
  for (std::size_t c = begin; c < end; ++c)
    cpus.insert(cpus.end(), cores[c].begin(), cores[c].end());
  std::sort(cpus.begin(), cpus.end());
  return cpus.empty() ? allowed[self] : cpus;
}

int count_cores(const std::vector<CpuInfo>& topology, const std::vector<int>& cpus) {
  return std::max<int>(1, static_cast<int>(cores_of(topology, cpus, -1).size()));
}

bool bind_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  const int last = *std::max_element(cpus.begin(), cpus.end());
  cpu_set_t* set = CPU_ALLOC(last + 1);
  const std::size_t size = CPU_ALLOC_SIZE(last + 1);
  if (set == nullptr) return false;
  CPU_ZERO_S(size, set);
  for (const int cpu : cpus) CPU_SET_S(cpu, size, set);
  const bool bound = ::sched_setaffinity(0, size, set) == 0;
  CPU_FREE(set);
  return bound;
}

}  // namespace tandem::launch
