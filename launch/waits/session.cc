// SPDX-License-Identifier: Apache-2.0
#include "launch/waits/session.h"

#include <cstdio>
#include <fstream>

#include "kernels/device/error.h"
#include "launch/bench/results.h"
#include "launch/waits/svg.h"
#include "launch/waits/table.h"
#include "launch/waits/trace.h"

namespace tandem::launch {
namespace {

std::ofstream open_output(const std::string& file) {
  std::ofstream out(file);
  TANDEM_REQUIRE(out, "--waits cannot write ", file,
                 "; name a file in a folder that exists, for example --waits waits.json");
  return out;
}

}  // namespace

void WaitsOptions::add_to(boost::program_options::options_description& options) {
  options.add_options()("waits", boost::program_options::value(&file),
                        "record where time goes; write the report to this file (JSON), and beside "
                        "it .svg and .trace.json (for ui.perfetto.dev)");
}

std::string beside(const std::string& file, const std::string& ending) {
  const std::string stem = file.ends_with(".json") ? file.substr(0, file.size() - 5) : file;
  return stem + ending;
}

WaitsSession::WaitsSession(Ranks& ranks, const WaitsOptions& options)
    : ranks_(ranks), options_(options) {
  if (!options_.wanted()) return;
  // A file that cannot be written is said now, not after the run.
  ranks.control.together([&] {
    if (ranks.first() && !options_.file.empty())
      for (const char* ending : {".json", ".svg", ".trace.json"})
        open_output(ending == std::string(".json") ? options_.file : beside(options_.file, ending));
  });
  recorder_ = std::make_unique<Recorder>();
  first_ = comm::measure_clock_offset(ranks.control);
}

runtime::RankLog WaitsSession::own_log(const MadeEngine& made, const std::string& device,
                                       int threads) {
  const comm::ClockOffset last = comm::measure_clock_offset(ranks_.control);
  // All ranks together, as in a step: they share the memory of their host.
  const Ceilings seen =
      device == "cpu" ? measure_cpu_ceilings(threads) : gpu_ceilings(made.device_name);
  runtime::RankLog log;
  log.rank = ranks_.control.rank();
  log.host = ranks_.session.host();
  log.device = made.device_name;
  log.synchronous = made.engine->limits().synchronous;
  log.ceilings = {seen.read_gb_per_s, seen.matmul_tflops};
  log.clock_uncertainty_us =
      static_cast<double>(std::max(first_.uncertainty_ns, last.uncertainty_ns)) / 1e3;
  log.dropped = recorder_->dropped();
  log.steps = recorder_->steps();
  log.spans = recorder_->spans();
  for (TimeSpan& span : log.spans) {
    span.begin_ns = comm::to_rank0_clock(span.begin_ns, first_, last);
    span.end_ns = comm::to_rank0_clock(span.end_ns, first_, last);
  }
  return log;
}

void WaitsSession::finish(const MadeEngine& made, const std::string& device, int threads,
                          const WaitsFacts& facts) {
  if (recorder_ == nullptr) return;
  made.engine->finish_recording();
  const auto texts = ranks_.control.all_gather(serialize(own_log(made, device, threads)));
  ranks_.control.together([&] {
    if (!ranks_.first()) return;
    std::vector<runtime::RankLog> logs;
    for (const std::string& text : texts) logs.push_back(runtime::deserialize_rank_log(text));
    write(logs, facts);
  });
}

void WaitsSession::write(const std::vector<runtime::RankLog>& logs, const WaitsFacts& facts) {
  const runtime::Attribution attribution = runtime::attribute(logs);
  WaitsReport report = make_report(logs, attribution, facts.first_step);
  report.model = facts.model;
  report.command = facts.command;
  std::fprintf(options_.table ? stdout : stderr, "%s%s", options_.table ? "" : "\n",
               waits_table(report).c_str());
  if (options_.file.empty()) return;
  open_output(options_.file) << boost::json::serialize(to_json(report)) << "\n";
  open_output(beside(options_.file, ".svg")) << waits_svg(report);
  std::ofstream trace = open_output(beside(options_.file, ".trace.json"));
  write_trace(trace, logs, attribution);
  std::fprintf(stderr, "waits: %s, %s, %s (open in ui.perfetto.dev)\n", options_.file.c_str(),
               beside(options_.file, ".svg").c_str(), beside(options_.file, ".trace.json").c_str());
}

}  // namespace tandem::launch
