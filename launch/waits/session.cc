// SPDX-License-Identifier: Apache-2.0
#include "launch/waits/session.h"

#include <cstdio>
#include <fstream>

#include "kernels/device/error.h"
#include "launch/bench/results.h"
#include "launch/output_file.h"
#include "launch/waits/svg.h"
#include "launch/waits/table.h"
#include "launch/waits/trace.h"

namespace tandem::launch {
namespace {

constexpr const char* kPicture = ".svg";
constexpr const char* kTrace = ".trace.json";

/// The report, its picture and its trace.
std::vector<OutputFile> files_of(const std::string& file) {
  for (const std::string ending : {kPicture, kTrace})
    TANDEM_REQUIRE(!file.ends_with(ending), "--waits names the report, which is JSON, and ", file,
                   " would be taken for what is written beside it; use --waits ",
                   file.substr(0, file.size() - ending.size()), ".json");
  return {
      {"--waits", file}, {"--waits", beside(file, kPicture)}, {"--waits", beside(file, kTrace)}};
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
  if (!options_.file.empty()) check_outputs(ranks, files_of(options_.file));
  recorder_ = std::make_unique<Recorder>();
  first_ = comm::measure_clock_offset(ranks.control);
}

void WaitsSession::calibrate(const MadeEngine& made, const std::string& device, int threads) {
  if (recorder_ == nullptr) return;
  ranks_.control.barrier();
  const Ceilings seen =
      device == "cpu" ? measure_cpu_ceilings(threads) : gpu_ceilings(made.device_name);
  ceilings_ = {seen.read_gb_per_s, seen.matmul_tflops};
  ranks_.control.barrier();  // or the first step would wait for the rank that measures longest
}

runtime::RankLog WaitsSession::own_log(const MadeEngine& made) {
  const comm::ClockOffset last = comm::measure_clock_offset(ranks_.control);
  runtime::RankLog log;
  log.rank = ranks_.control.rank();
  log.host = ranks_.session.host();
  log.device = made.device_name;
  log.synchronous = made.engine->limits().synchronous;
  log.ceilings = ceilings_;
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

void WaitsSession::finish(const MadeEngine& made, const WaitsFacts& facts) {
  if (recorder_ == nullptr) return;
  made.engine->finish_recording();
  const auto texts = ranks_.control.all_gather(serialize(own_log(made)));
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
  write_text_file("--waits", options_.file, boost::json::serialize(to_json(report)) + "\n");
  write_text_file("--waits", beside(options_.file, kPicture), waits_svg(report));
  std::ofstream trace(beside(options_.file, kTrace));
  write_trace(trace, logs, attribution);
  TANDEM_REQUIRE(trace.flush(), "--waits ", beside(options_.file, kTrace),
                 " cannot be written; is the disk full?");
  std::fprintf(stderr, "waits: %s, %s, %s (open in ui.perfetto.dev)\n", options_.file.c_str(),
               beside(options_.file, kPicture).c_str(), beside(options_.file, kTrace).c_str());
}

}  // namespace tandem::launch
