// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "launch/host_facts.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

json::array list(const std::vector<std::string>& words) {
  return json::array(words.begin(), words.end());
}

json::object table(const std::map<std::string, std::string>& words) {
  json::object object;
  for (const auto& [key, value] : words) object[key] = value;
  return object;
}

std::vector<std::string> words_of(const json::value& value) {
  std::vector<std::string> words;
  for (const json::value& word : value.as_array()) words.emplace_back(word.as_string().c_str());
  return words;
}

std::map<std::string, std::string> table_of(const json::value& value) {
  std::map<std::string, std::string> words;
  for (const auto& [key, word] : value.as_object())
    words[std::string(key)] = word.as_string().c_str();
  return words;
}

}  // namespace

std::string to_text(const HostFacts& facts) {
  return json::serialize(json::object{{"rank", facts.rank},
                                      {"host", facts.host},
                                      {"boot_id", facts.boot_id},
                                      {"versions", table(facts.versions)},
                                      {"shm_total_bytes", facts.shm_total_bytes},
                                      {"shm_free_bytes", facts.shm_free_bytes},
                                      {"memlock_bytes", facts.memlock_bytes},
                                      {"open_files", facts.open_files},
                                      {"stack_bytes", facts.stack_bytes},
                                      {"cores", facts.cores},
                                      {"ranks_on_host", facts.ranks_on_host},
                                      {"rdma", facts.rdma},
                                      {"interfaces", list(facts.interfaces)},
                                      {"bridges", list(facts.bridges)},
                                      {"stale_shared_files", list(facts.stale_shared_files)},
                                      {"nccl_libraries", list(facts.nccl_libraries)},
                                      {"environment", table(facts.environment)},
                                      {"gpus", list(facts.gpus)},
                                      {"gpu_problem", facts.gpu_problem},
                                      {"no_peer_access", list(facts.no_peer_access)},
                                      {"pcie_peers", list(facts.pcie_peers)}});
}

HostFacts host_facts_from(const std::string& text) {
  const json::value value = json::parse(text);
  HostFacts facts;
  facts.rank = static_cast<int>(value.at("rank").as_int64());
  facts.host = value.at("host").as_string().c_str();
  facts.boot_id = value.at("boot_id").as_string().c_str();
  facts.versions = table_of(value.at("versions"));
  facts.shm_total_bytes = value.at("shm_total_bytes").as_int64();
  facts.shm_free_bytes = value.at("shm_free_bytes").as_int64();
  facts.memlock_bytes = value.at("memlock_bytes").as_int64();
  facts.open_files = value.at("open_files").as_int64();
  facts.stack_bytes = value.at("stack_bytes").as_int64();
  facts.cores = static_cast<int>(value.at("cores").as_int64());
  facts.ranks_on_host = static_cast<int>(value.at("ranks_on_host").as_int64());
  facts.rdma = value.at("rdma").as_bool();
  facts.interfaces = words_of(value.at("interfaces"));
  facts.bridges = words_of(value.at("bridges"));
  facts.stale_shared_files = words_of(value.at("stale_shared_files"));
  facts.nccl_libraries = words_of(value.at("nccl_libraries"));
  facts.environment = table_of(value.at("environment"));
  facts.gpus = words_of(value.at("gpus"));
  facts.gpu_problem = value.at("gpu_problem").as_string().c_str();
  facts.no_peer_access = words_of(value.at("no_peer_access"));
  facts.pcie_peers = words_of(value.at("pcie_peers"));
  return facts;
}

}  // namespace tandem::launch
