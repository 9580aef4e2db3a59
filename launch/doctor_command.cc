// SPDX-License-Identifier: Apache-2.0
#include "launch/doctor_command.h"

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <set>

#include "kernels/device/cpu/context.h"
#include "kernels/device/error.h"
#include "launch/cluster_config.h"
#include "launch/collective_probe.h"
#include "launch/command_line.h"
#include "launch/doctor_check.h"
#include "launch/doctor_device.h"
#include "launch/doctor_rates.h"
#include "launch/host_checks.h"
#include "launch/host_facts.h"
#include "launch/output_file.h"
#include "launch/placement.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;
namespace json = boost::json;

struct DoctorOptions {
  std::string device = "auto", cluster;
  std::string rates;  ///< A file.
  bool json = false, allow_shared_gpu = false;
  int threads = 0;  ///< 0: the placement's.
};

struct Report {
  std::vector<HostFacts> facts;
  std::vector<Check> checks;
  std::vector<Place> places;
  std::vector<CollectiveRow> collectives;
  std::optional<DeviceRates> rates;
};

/// Prints the help and returns nothing when that was asked for.
std::optional<DoctorOptions> parse(Ranks& ranks, const std::vector<std::string>& arguments) {
  DoctorOptions result;
  po::options_description options("tandem doctor [options]\noptions");
  options.add_options()("help,h", "this text")("device", po::value(&result.device),
                                               "auto, cpu or cuda: what the ranks would use")(
      "cluster", po::value(&result.cluster),
      "a file of cluster_configs/: compare with what it promises")(
      "rates", po::value(&result.rates),
      "measure how fast the ranks multiply, attend and talk, and write it to this file, for "
      "tandem plan --doctor")("threads",
                              po::value(&result.threads)->default_value(0, "share of the cores"),
                              "CPU ranks: threads of each rank while rates are measured")(
      "allow-shared-gpu", "several ranks may have one GPU (tests only)")(
      "json", "one JSON object on stdout");
  const auto values = parse_or_help(ranks.first(), "doctor", arguments, options);
  if (!values) return std::nullopt;
  TANDEM_REQUIRE(result.device == "auto" || result.device == "cpu" || result.device == "cuda",
                 "--device ", result.device, " is none of auto, cpu, cuda");
  require_threads(result.threads);
  result.json = values->count("json") != 0;
  result.allow_shared_gpu = values->count("allow-shared-gpu") != 0;
  return result;
}

/// Runs a part of the examination; what it throws on all ranks alike becomes a red line. Codes of
/// CUDA, NCCL and MPI are a rank's own: they end the job, because the others wait.
template <typename Work>
bool examine(Report& report, const char* topic, const char* fix, Work work) {
  try {
    work();
    return true;
  } catch (const CodedError&) {
    throw;
  } catch (const Error& error) {
    report.checks.push_back({topic, Health::kRed, error.what(), fix});
    return false;
  }
}

void gather_facts(Ranks& ranks, const DeviceReport& devices, bool cuda, Report& report) {
  HostFacts mine = gather_host_facts(ranks.session, devices, cuda);
  for (const auto& [name, version] : device_versions()) mine.versions[name] = version;
  for (const std::string& text : ranks.control.all_gather(to_text(mine)))
    report.facts.push_back(host_facts_from(text));
  report.checks = check_hosts(report.facts, cuda);
}

/// The link that limits an all-reduce of this job and, when a cluster file tells, its speed.
std::pair<std::string, double> limiting_link(const Report& report,
                                             const std::optional<ClusterConfig>& cluster,
                                             bool cuda) {
  std::set<std::string> hosts;
  for (const HostFacts& facts : report.facts) hosts.insert(facts.host);
  const bool several = hosts.size() > 1;
  if (cluster)
    return several ? std::pair{cluster->between_hosts, cluster->between_hosts_gbyte_per_s}
                   : std::pair{cluster->within_host, cluster->within_host_gbyte_per_s};
  return {several ? "the network" : cuda ? "the GPUs' links" : "shared memory", 0};
}

void examine_collectives(Ranks& ranks, bool cuda, comm::Progress& progress, Report& report) {
  if (ranks.control.size() == 1) return;
  const bool works = examine(report, "collectives", "see the first error of the ranks above", [&] {
    Context<Cpu> ctx(1);
    comm::Communicator<Cpu> communicator(ranks.control);
    progress.enter(comm::StageKind::kStep, "doctor: all-reduce over MPI");
    report.collectives = probe_all_reduce(ctx, communicator, ranks.control, "cpu");
  });
  if (works)
    report.checks.push_back({"collectives", Health::kGreen, "sums over MPI are right", ""});
  if (!cuda) return;
  examine(report, "GPU collectives",
          "try again with NCCL_P2P_DISABLE=1; when that helps, switch off ACS and the IOMMU", [&] {
            const DeviceDiagnosis found = diagnose_gpus(ranks, report.places);
            report.checks.insert(report.checks.end(), found.checks.begin(), found.checks.end());
            report.collectives.insert(report.collectives.end(), found.collectives.begin(),
                                      found.collectives.end());
          });
}

void examine_rates(Ranks& ranks, const DoctorOptions& options, bool cuda, Report& report) {
  examine(report, "rates", "see the sentence", [&] {
    const int share = report.places[static_cast<std::size_t>(ranks.session.rank())].threads;
    report.rates = cuda ? measure_gpu_rates(ranks, report.places)
                        : measure_cpu_rates(ranks, options.threads > 0 ? options.threads : share);
  });
  ranks.control.together([&] {
    if (ranks.first() && report.rates) write_rates(options.rates, *report.rates);
  });
}

void print(const Report& report, bool as_json, bool color) {
  if (as_json) {
    json::array hosts;
    for (const HostFacts& facts : report.facts) hosts.push_back(json::parse(to_text(facts)));
    json::object document{{"status", name_of(worst(report.checks))},
                          {"checks", to_json(report.checks)},
                          {"placement", to_json(report.places)},
                          {"collectives", to_json(report.collectives)},
                          {"ranks", hosts}};
    if (report.rates) document["rates"] = to_json(*report.rates);
    std::printf("%s\n", json::serialize(document).c_str());
    return;
  }
  std::printf("%s", checks_text(report.checks, color).c_str());
  if (!report.places.empty()) std::printf("\n%s", placement_table(report.places).c_str());
  if (!report.collectives.empty())
    std::printf("\n%s", collectives_text(report.collectives).c_str());
  if (report.rates) std::printf("\n%s", rates_text(*report.rates).c_str());
  std::printf("\n%s\n", name_of(worst(report.checks)));
}

}  // namespace

int run_doctor(Ranks& ranks, const std::vector<std::string>& arguments) {
  const auto options = parse(ranks, arguments);
  if (!options) return 0;
  check_outputs(ranks, {{"--rates", options->rates}});
  std::optional<ClusterConfig> cluster;
  if (!options->cluster.empty()) cluster = read_cluster_config(options->cluster);
  const DeviceReport devices = query_devices();
  const bool seen = devices.built_with_cuda && devices.problem.empty();
  const bool cuda = options->device == "cuda" ||
                    (options->device == "auto" && ranks.control.min(seen ? 1 : 0) == 1);
  Report report;
  gather_facts(ranks, devices, cuda, report);
  examine(report, "placement", "see the sentence", [&] {
    report.places = place_ranks(
        ranks.session, ranks.control, devices,
        {cuda, options->allow_shared_gpu, ranks.job.keep_binding, ranks.job.interfaces});
  });
  examine_collectives(ranks, cuda && !report.places.empty(), ranks.watchdog.progress(), report);
  if (!options->rates.empty() && !report.places.empty())
    examine_rates(ranks, *options, cuda, report);
  if (!report.collectives.empty()) {
    const auto [link, speed] = limiting_link(report, cluster, cuda);
    report.checks.push_back(check_bandwidth(report.collectives, link, speed));
  }
  if (cluster)
    report.checks.push_back(
        cluster->world_size() == ranks.control.size()
            ? Check{"cluster file", Health::kGreen, "as many ranks as it describes", ""}
            : Check{"cluster file", Health::kYellow,
                    concat("it describes ", cluster->world_size(), " ranks, there are ",
                           ranks.control.size()),
                    "tandem launch --cluster " + options->cluster + " -- doctor"});
  // mpirun gives its ranks a terminal even when it writes to a file itself.
  const bool color = !ranks.session.under_launcher() && ::isatty(STDOUT_FILENO) == 1;
  if (ranks.first()) print(report, options->json, color);
  return worst(report.checks) == Health::kRed ? 1 : 0;
}

}  // namespace tandem::launch
