// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/scaling.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "launch/bench/scaling_jobs.h"
#include "launch/bench/scaling_options.h"
#include "launch/bench/scaling_results.h"
#include "launch/bench/scaling_waits.h"
#include "launch/child_process.h"
#include "launch/launch_command.h"
#include "launch/output_file.h"
#include "runtime/text_file.h"
#include "runtime/weights/model_path.h"

namespace tandem::launch {
namespace {

using Words = std::vector<std::string>;

/// Options of srun that a site needs everywhere; the scripts of launch/slurm know them too.
void add_srun_options(LaunchLine& line) {
  const char* more = std::getenv("TANDEM_SRUN");
  if (more == nullptr || line.words.front() != "srun") return;
  std::istringstream in(more);
  const Words words{std::istream_iterator<std::string>(in), {}};
  line.words.insert(line.words.begin() + 1, words.begin(), words.end());
}

struct Jobs {
  ClusterConfig cluster;
  std::vector<int> sizes;
  Words command;  ///< The same at every size.
};

Jobs plan_jobs(const std::string& program, const ScalingOptions& options) {
  TANDEM_REQUIRE(
      !options.latency.engine.model.empty(),
      "no model was named; use tandem bench scaling --model FOLDER, --model FILE.gguf or "
      "--model org/name");
  const auto model =
      runtime::read_model_config(runtime::resolve_model_path(options.latency.engine.model));
  const Surroundings around = look_around();
  const auto largest = std::max_element(options.sizes.begin(), options.sizes.end());
  const int wanted = largest == options.sizes.end() ? 1 : *largest;
  Jobs jobs;
  jobs.cluster = options.cluster.empty()
                     ? surrounding_cluster(around, options.latency.engine.device, wanted)
                     : read_cluster_config(options.cluster);
  jobs.sizes = scaling_sizes(options.sizes, jobs.cluster.world_size(), model);
  const bool has_folder = program.find('/') != std::string::npos;
  jobs.command = {
      has_folder ? std::filesystem::absolute(program).lexically_normal().string() : program,
      "bench", "latency"};
  jobs.command.insert(jobs.command.end(), options.passed_on.begin(), options.passed_on.end());
  if (options.latency.engine.device == "auto")
    jobs.command.insert(jobs.command.end(), {"--device", jobs.cluster.device});
  const int threads = threads_per_rank(jobs.cluster, around, jobs.sizes.back());
  if (options.latency.engine.threads == 0 && threads > 0)
    jobs.command.insert(jobs.command.end(), {"--threads", std::to_string(threads)});
  jobs.command.insert(jobs.command.end(), {"--json", "-"});
  return jobs;
}

LatencyDocument run_size(const Jobs& jobs, int ranks, const Words& more) {
  Words command = jobs.command;
  command.insert(command.end(), more.begin(), more.end());
  LaunchLine line = build_launch_line(jobs.cluster, ranks, /*in_allocation=*/true, command);
  add_srun_options(line);
  const std::string shown = quoted(line.words);
  line = with_hostfile(std::move(line));
  const ChildResult result = run_child(line.words, line.environment);
  TANDEM_REQUIRE(result.exit_code == 0, "bench latency on ", ranks, ranks == 1 ? " rank" : " ranks",
                 " ended with exit code ", result.exit_code,
                 "; the lines above say why, and this repeats it: ", shown);
  return parse_latency_document(concat("the run on ", ranks, ranks == 1 ? " rank" : " ranks"),
                                result.output);
}

std::vector<LatencyDocument> run_all(const Jobs& jobs, int rounds) {
  std::vector<LatencyDocument> documents;
  std::vector<int> order = jobs.sizes;
  for (int round = 0; round < rounds; ++round) {
    for (const int ranks : order) {
      std::fprintf(stderr, "bench scaling: %d rank%s, round %d of %d\n", ranks,
                   ranks == 1 ? "" : "s", round + 1, rounds);
      documents.push_back(run_size(jobs, ranks, {}));
    }
    // A machine that grows slower with time must not favour the same size every round.
    std::reverse(order.begin(), order.end());
  }
  return documents;
}

/// A folder for reports that nobody asked to keep.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-scaling-XXXXXX").string();
    TANDEM_REQUIRE(::mkdtemp(name.data()) != nullptr, "cannot make a folder ", name,
                   "; set TMPDIR to a folder that can be written");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Every size once more, recorded; apart, because recording is not free. With --json the reports,
/// their pictures and traces stay beside it.
std::vector<SizeWaits> run_waits(const Jobs& jobs, const ScalingOptions& options) {
  std::vector<SizeWaits> waits;
  if (options.skip_waits) return waits;
  const TemporaryFolder folder;
  std::string stem = (folder.path() / "waits").string();
  if (!options.json.empty() && options.json != "-")
    stem = std::filesystem::path(options.json).replace_extension().string() + "-waits";
  for (const int ranks : jobs.sizes) {
    std::fprintf(stderr, "bench scaling: %d rank%s, waits\n", ranks, ranks == 1 ? "" : "s");
    const std::string file = concat(stem, "-tp", ranks, ".json");
    run_size(jobs, ranks, {"--waits", std::filesystem::absolute(file).string()});
    waits.push_back({ranks, read_report(file)});
  }
  return waits;
}

std::vector<LatencyDocument> read_results(const std::vector<std::string>& paths) {
  std::vector<LatencyDocument> documents;
  for (const std::string& path : paths) {
    const auto text = runtime::read_text_file(path);
    TANDEM_REQUIRE(text, "--results: cannot read ", path,
                   "; name files of tandem bench latency --json");
    documents.push_back(parse_latency_document(path, *text));
  }
  return documents;
}

void print_jobs(const Jobs& jobs) {
  for (const int ranks : jobs.sizes) {
    LaunchLine line = build_launch_line(jobs.cluster, ranks, true, jobs.command);
    add_srun_options(line);
    std::printf("%s\n", quoted(line.words).c_str());
  }
}

void write_results(const ScalingOptions& options, const Words& arguments,
                   const std::vector<LatencyDocument>& documents,
                   const std::vector<SizeWaits>& waits) {
  const std::vector<WaitSplit> splits = wait_splits(waits);
  const std::vector<ScalingCase> cases = scaling_cases(documents);
  const boost::json::object& first = documents.front().json;
  const bool cpu = first.at("work").as_object().at("device").as_string() == "cpu";
  const std::string command = concat("tandem bench scaling ", quoted(arguments));
  BenchResults results(cpu ? "scaling-cpu" : "scaling", command);
  results.set_work(first.at("work").as_object());
  results.set_origin(first.at("machine").as_object(), first.at("commit").as_string().c_str());
  add_rows(cases, results);
  add_rows(cases.front().model, splits, results);
  if (options.json != "-")
    std::printf("%s\n%s", scaling_table(cases).c_str(), waits_split_table(splits).c_str());
  if (!options.json.empty()) results.write(options.json);
  if (!options.csv.empty()) write_text_file("--csv", options.csv, scaling_csv(cases));
  if (!options.svg.empty())
    write_text_file("--svg", options.svg,
                    scaling_svg(cases, wait_charts(splits), results.origin_text()));
}

}  // namespace

int start_bench_scaling(const std::string& program, const Words& arguments) {
  const auto options = parse_scaling_options(arguments);
  if (!options) return 0;
  check_outputs({{"--json", options->json}, {"--csv", options->csv}, {"--svg", options->svg}});
  if (!options->results.empty()) {
    write_results(*options, arguments, read_results(options->results), {});
    return 0;
  }
  const Jobs jobs = plan_jobs(program, *options);
  if (options->dry_run) {
    print_jobs(jobs);
    return 0;
  }
  try {
    const std::vector<LatencyDocument> documents = run_all(jobs, options->rounds);
    write_results(*options, arguments, documents, run_waits(jobs, *options));
  } catch (const Interrupted& interrupted) {
    std::fprintf(stderr, "tandem: bench scaling was %s; its ranks are gone\n", interrupted.what());
    return 128 + interrupted.signal;
  }
  return 0;
}

int run_bench_scaling(Ranks&, const Words&) {
  throw ConfigError(
      "bench scaling starts its ranks itself; run it without mpirun or srun, for example tandem "
      "bench scaling --model MODEL --sizes 1 2");
}

bool is_rank() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

}  // namespace tandem::launch
