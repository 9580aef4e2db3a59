// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>

#include "kernels/device/error.h"
#include "launch/command_line.h"
#include "runtime/text_file.h"

namespace tandem::launch {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

int parse_int(const std::string& text, int minimum) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < minimum || value > 100000)
    throw ConfigError(concat("\"", text, "\" is no whole number of at least ", minimum));
  return static_cast<int>(value);
}

double parse_positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || !std::isfinite(value))
    throw ConfigError(concat("\"", text, "\" is no number above 0"));
  return value;
}

std::string one_of(const std::string& text, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return text;
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  throw ConfigError(concat("\"", text, "\" is none of ", list));
}

using Setter = std::function<void(ClusterConfig&, const std::string&)>;

/// Section and key, and what they set. [environment] takes any key.
const std::map<std::pair<std::string, std::string>, Setter>& setters() {
  static const std::map<std::pair<std::string, std::string>, Setter> table = {
      {{"cluster", "name"}, [](auto& c, auto& v) { c.name = v; }},
      {{"cluster", "description"}, [](auto& c, auto& v) { c.description = v; }},
      {{"cluster", "launcher"},
       [](auto& c, auto& v) {
         const std::string word = one_of(v, {"local", "mpirun", "slurm"});
         c.launcher = word == "local"    ? Launcher::kLocal
                      : word == "mpirun" ? Launcher::kMpirun
                                         : Launcher::kSlurm;
       }},
      {{"hosts", "names"}, [](auto& c, auto& v) { c.hosts = expand_hosts(v); }},
      {{"hosts", "count"}, [](auto& c, auto& v) { c.num_hosts = parse_int(v, 1); }},
      {{"hosts", "ranks_per_host"}, [](auto& c, auto& v) { c.ranks_per_host = parse_int(v, 1); }},
      {{"device", "kind"},
       [](auto& c, auto& v) {
         c.device = one_of(v, {"cpu", "cuda"});
       }},
      {{"device", "model"}, [](auto& c, auto& v) { c.model = v; }},
      {{"device", "memory_gib"}, [](auto& c, auto& v) { c.memory_gib = parse_positive(v); }},
      {{"device", "memory_gbyte_per_s"},
       [](auto& c, auto& v) { c.memory_gbyte_per_s = parse_positive(v); }},
      {{"device", "bf16_tflops"}, [](auto& c, auto& v) { c.bf16_tflops = parse_positive(v); }},
      {{"device", "op_latency_us"}, [](auto& c, auto& v) { c.op_latency_us = parse_positive(v); }},
      {{"links", "within_host_latency_us"},
       [](auto& c, auto& v) { c.within_host_latency_us = parse_positive(v); }},
      {{"links", "between_hosts_latency_us"},
       [](auto& c, auto& v) { c.between_hosts_latency_us = parse_positive(v); }},
      {{"links", "within_host"},
       [](auto& c, auto& v) {
         c.within_host = one_of(v, {"shared-memory", "nvlink", "pcie"});
       }},
      {{"links", "within_host_gbyte_per_s"},
       [](auto& c, auto& v) { c.within_host_gbyte_per_s = parse_positive(v); }},
      {{"links", "between_hosts"},
       [](auto& c, auto& v) {
         c.between_hosts = one_of(v, {"none", "ethernet", "infiniband"});
       }},
      {{"links", "between_hosts_gbyte_per_s"},
       [](auto& c, auto& v) { c.between_hosts_gbyte_per_s = parse_positive(v); }},
      {{"network", "interface"}, [](auto& c, auto& v) { c.interface = v; }},
      {{"slurm", "partition"}, [](auto& c, auto& v) { c.partition = v; }},
      {{"slurm", "account"}, [](auto& c, auto& v) { c.account = v; }},
      {{"slurm", "time_limit"}, [](auto& c, auto& v) { c.time_limit = v; }},
      {{"slurm", "cpus_per_rank"}, [](auto& c, auto& v) { c.cpus_per_rank = parse_int(v, 1); }},
      {{"slurm", "options"},
       [](auto& c, auto& v) {
         std::istringstream in(v);
         for (std::string word; in >> word;) c.slurm_options.push_back(word);
       }},
  };
  return table;
}

/// The known key or section that was probably meant, as a hint.
std::string hint(const std::string& section, const std::string& key) {
  std::set<std::string> sections{"environment"}, keys;
  for (const auto& [name, setter] : setters()) {
    sections.insert(name.first);
    if (name.first == section) keys.insert(name.second);
  }
  const std::set<std::string>& known = keys.empty() ? sections : keys;
  const std::string meant = nearest(keys.empty() ? section : key, {known.begin(), known.end()});
  if (!meant.empty()) return concat("; did you mean ", meant, "?");
  std::string list;
  for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
  return concat("; known here: ", list);
}

void set_value(ClusterConfig& config, const std::string& section, const std::string& key,
               const std::string& value, const std::string& place) {
  if (section == "environment") {
    config.environment.emplace_back(key, value);
    return;
  }
  const auto found = setters().find({section, key});
  TANDEM_REQUIRE(found != setters().end(), place, ": unknown key", hint(section, key));
  try {
    found->second(config, value);
  } catch (const ConfigError& error) {
    throw ConfigError(concat(place, ": ", error.what()));
  }
}

/// What only the whole file shows. `lines` maps "section.key" to its line.
void check(ClusterConfig& config, const std::map<std::string, int>& lines,
           const std::string& file) {
  const auto place = [&](const std::string& key) {
    const auto found = lines.find(key);
    const auto dot = key.find('.');
    return concat(file, found == lines.end() ? "" : concat(":", found->second), ": [",
                  key.substr(0, dot), "] ", key.substr(dot + 1));
  };
  for (const char* key :
       {"cluster.name", "cluster.launcher", "device.kind", "hosts.ranks_per_host"})
    TANDEM_REQUIRE(lines.count(key) != 0, place(key), ": missing; add this key");
  const bool named = !config.hosts.empty();
  if (named && lines.count("hosts.count") != 0)
    TANDEM_REQUIRE(config.num_hosts == static_cast<int>(config.hosts.size()), place("hosts.count"),
                   ": ", config.num_hosts, " but names has ", config.hosts.size(),
                   " hosts; remove one of the two keys");
  if (named) config.num_hosts = static_cast<int>(config.hosts.size());
  TANDEM_REQUIRE(config.launcher != Launcher::kMpirun || named, place("hosts.names"),
                 ": mpirun needs the names of the hosts; add for example names = node[0-1]");
  TANDEM_REQUIRE(config.launcher != Launcher::kLocal || config.num_hosts == 1,
                 place("cluster.launcher"), ": local runs on one host, the file has ",
                 config.num_hosts, "; write mpirun or slurm");
  TANDEM_REQUIRE(config.num_hosts == 1 || config.between_hosts != "none",
                 place("links.between_hosts"),
                 ": several hosts need a link; write ethernet or infiniband");
}

}  // namespace

std::vector<std::string> expand_hosts(const std::string& text) {
  std::vector<std::string> hosts;
  std::string item;
  int depth = 0;
  const auto add = [&hosts](const std::string& name) {
    const auto open = name.find('['), close = name.find(']');
    TANDEM_REQUIRE(!name.empty() && name.find_first_of(" \t/=") == std::string::npos &&
                       (open == std::string::npos) == (close == std::string::npos) && open <= close,
                   "\"", name, "\" is no host name; write for example node[0-3],gpu7");
    if (open == std::string::npos) return hosts.push_back(name);
    std::istringstream ranges(name.substr(open + 1, close - open - 1));
    for (std::string range; std::getline(ranges, range, ',');) {
      const auto dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const int begin = parse_int(first, 0);
      const int end = dash == std::string::npos ? begin : parse_int(range.substr(dash + 1), begin);
      for (int number = begin; number <= end; ++number) {
        std::string digits = std::to_string(number);
        if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
        hosts.push_back(name.substr(0, open) + digits + name.substr(close + 1));
      }
    }
  };
  for (const char c : text + ",") {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth <= 0) {
      add(trimmed(item));
      item.clear();
    } else {
      item += c;
    }
  }
  TANDEM_REQUIRE(depth == 0, "\"", text, "\" has an open bracket");
  const std::set<std::string> unique(hosts.begin(), hosts.end());
  TANDEM_REQUIRE(unique.size() == hosts.size(), "a host is named twice");
  return hosts;
}

ClusterConfig parse_cluster_config(const std::string& text, const std::string& file_name) {
  ClusterConfig config;
  std::map<std::string, int> lines;
  std::string section;
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = trimmed(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    const std::string where = concat(file_name, ":", number, ": ");
    if (line.front() == '[') {
      TANDEM_REQUIRE(line.back() == ']', where, "a section is written [name]");
      section = trimmed(line.substr(1, line.size() - 2));
      const bool known = section == "environment" ||
                         std::any_of(setters().begin(), setters().end(), [&](const auto& entry) {
                           return entry.first.first == section;
                         });
      TANDEM_REQUIRE(known, where, "unknown section [", section, "]", hint(section, ""));
      continue;
    }
    const auto equals = line.find('=');
    TANDEM_REQUIRE(equals != std::string::npos, where, "\"", line,
                   "\" is no key; write key = value");
    const std::string key = trimmed(line.substr(0, equals));
    const std::string value = trimmed(line.substr(equals + 1));
    TANDEM_REQUIRE(!section.empty(), where, key, " stands before the first [section]");
    const std::string place = concat(where, "[", section, "] ", key);
    const auto [before, is_new] = lines.emplace(section + "." + key, number);
    TANDEM_REQUIRE(is_new, place, ": already set in line ", before->second, "; remove one");
    set_value(config, section, key, value, place);
  }
  check(config, lines, file_name);
  return config;
}

ClusterConfig read_cluster_config(const std::filesystem::path& path) {
  const auto text = runtime::read_text_file(path);
  TANDEM_REQUIRE(text, "--cluster: cannot read ", path.string(),
                 "; name a file of cluster_configs/, for example --cluster "
                 "cluster_configs/laptop_cpu.ini");
  return parse_cluster_config(*text, path.string());
}

}  // namespace tandem::launch
