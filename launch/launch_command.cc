// SPDX-License-Identifier: Apache-2.0
#include "launch/launch_command.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "kernels/device/error.h"
#include "launch/command_line.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;

/// A file in memory that mpirun inherits: nothing to remove afterwards.
std::string write_hostfile(const std::string& text) {
  const int descriptor = ::memfd_create("tandem-hostfile", 0);
  TANDEM_REQUIRE(descriptor >= 0 && ::write(descriptor, text.data(), text.size()) ==
                                        static_cast<ssize_t>(text.size()),
                 "cannot keep the hostfile in memory: ", std::strerror(errno));
  return concat("/proc/self/fd/", descriptor);
}

void print_plan(const LaunchLine& line) {
  for (const auto& [name, value] : line.environment)
    std::printf("export %s\n", quoted({name + "=" + value}).c_str());
  if (!line.hostfile.empty()) std::printf("# hostfile:\n%s", line.hostfile.c_str());
  std::printf("%s\n", quoted(line.words).c_str());
}

[[noreturn]] void become(LaunchLine line) {
  line = with_hostfile(std::move(line));
  for (const auto& [name, value] : line.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (std::string& word : line.words) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  throw ConfigError(concat("cannot start ", words[0], ": ", std::strerror(errno),
                           "; install it or put it on PATH"));
}

}  // namespace

LaunchLine with_hostfile(LaunchLine line) {
  if (!line.hostfile.empty()) {
    const std::string path = write_hostfile(line.hostfile);
    std::replace(line.words.begin(), line.words.end(), std::string(kHostfile), path);
  }
  return line;
}

int run_launch(const std::string& program, const std::vector<std::string>& arguments) {
  std::string file;
  int ranks = 0;
  po::options_description options("tandem launch --cluster FILE [options] -- COMMAND...\noptions");
  options.add_options()("help,h", "this text")("cluster", po::value(&file),
                                               "a file of cluster_configs/")(
      "ranks", po::value(&ranks)->default_value(0), "ranks to start; 0: all of the cluster")(
      "dry-run", "print the line and the hostfile, start nothing");
  const auto split = std::find(arguments.begin(), arguments.end(), "--");
  const auto values =
      parse_or_help(/*print_help=*/true, "launch", {arguments.begin(), split}, options);
  if (!values) return 0;
  const std::string usage = "write: tandem launch --cluster FILE -- generate --model MODEL ...";
  TANDEM_REQUIRE(!file.empty(), "launch needs a cluster; ", usage);
  TANDEM_REQUIRE(split != arguments.end() && split + 1 != arguments.end(),
                 "launch needs a command after --; ", usage);
  const ClusterConfig cluster = read_cluster_config(file);
  // Other hosts start in another folder; a name without a folder is looked up on each host's PATH.
  const bool has_folder = program.find('/') != std::string::npos;
  std::vector<std::string> command{
      has_folder ? std::filesystem::absolute(program).lexically_normal().string() : program};
  command.insert(command.end(), split + 1, arguments.end());
  // A file with CPU ranks means CPU ranks, also on hosts with GPUs.
  const bool takes_device = split[1] == "generate" || split[1] == "chat" || split[1] == "serve" ||
                            split[1] == "bench" || split[1] == "waits" || split[1] == "doctor";
  const auto says_device = [](const std::string& word) { return word.rfind("--device", 0) == 0; };
  if (takes_device && std::none_of(split + 2, arguments.end(), says_device))
    command.insert(command.end(), {"--device", cluster.device});
  LaunchLine line =
      build_launch_line(cluster, ranks, std::getenv("SLURM_JOB_ID") != nullptr, command);
  if (values->count("dry-run")) {
    print_plan(line);
    return 0;
  }
  become(std::move(line));
}

}  // namespace tandem::launch
