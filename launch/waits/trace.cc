// SPDX-License-Identifier: Apache-2.0
#include "launch/waits/trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <string>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

constexpr int kStepsThread = 0;
constexpr const char* kThreads[] = {"steps", "host", "compute", "comm"};

int thread_of(Lane lane) { return 1 + static_cast<int>(lane); }

class Writer {
 public:
  Writer(std::ostream& out, std::int64_t start_ns) : out_(out), start_ns_(start_ns) {
    out_ << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  }
  ~Writer() { out_ << "\n]}\n"; }

  void name(const char* what, int rank, int thread, const std::string& text) {
    write(
        {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", text}}}});
  }
  void complete(const std::string& text, int rank, int thread, std::int64_t begin_ns,
                std::int64_t end_ns, json::object args) {
    write({{"ph", "X"},
           {"name", text},
           {"pid", rank},
           {"tid", thread},
           {"ts", static_cast<double>(begin_ns - start_ns_) / 1e3},
           {"dur", static_cast<double>(end_ns - begin_ns) / 1e3},
           {"args", std::move(args)}});
  }

 private:
  void write(const json::object& event) {
    out_ << (first_ ? "\n" : ",\n") << json::serialize(event);
    first_ = false;
  }
  std::ostream& out_;
  std::int64_t start_ns_;
  bool first_ = true;
};

void write_spans(Writer& writer, const runtime::RankLog& log) {
  for (const TimeSpan& span : log.spans) {
    json::object args{{"step", span.step}};
    if (span.layer >= 0) args["layer"] = span.layer;
    if (span.bytes > 0) args["bytes"] = span.bytes;
    if (span.flops > 0) args["flops"] = span.flops;
    if (span.kernels > 0) args["kernels"] = span.kernels;
    if (span.fence_ns > 0) args["fence_ns"] = span.fence_ns;
    if (span.tile_share > 0) args["share_waiting_for_tiles"] = span.tile_share;
    writer.complete(tandem::name(span.activity), log.rank, thread_of(span.lane), span.begin_ns,
                    span.end_ns, std::move(args));
  }
}

void write_steps(Writer& writer, int rank, const std::vector<runtime::AttributedStep>& steps) {
  for (const runtime::AttributedStep& step : steps) {
    json::object args{{"decode_rows", step.record.decode_rows},
                      {"prefill_tokens", step.record.prefill_tokens}};
    for (int r = 0; r < runtime::kNumWaitRows; ++r) {
      const auto row = static_cast<runtime::WaitRow>(r);
      args[std::string(runtime::key(row)) + "_us"] = step.ns(row) / 1e3;
    }
    writer.complete(concat("step ", step.record.step), rank, kStepsThread, step.begin_ns,
                    step.end_ns, std::move(args));
  }
}

}  // namespace

void write_trace(std::ostream& out, const std::vector<runtime::RankLog>& logs,
                 const runtime::Attribution& attribution) {
  std::int64_t start_ns = INT64_MAX;
  for (const runtime::RankLog& log : logs)
    for (const TimeSpan& span : log.spans) start_ns = std::min(start_ns, span.begin_ns);
  Writer writer(out, start_ns);
  for (const runtime::RankLog& log : logs) {
    writer.name("process_name", log.rank, 0,
                concat("rank ", log.rank, " (", log.host, ", ", log.device, ")"));
    for (int thread = 0; thread < 4; ++thread)
      writer.name("thread_name", log.rank, thread, kThreads[thread]);
    write_steps(writer, log.rank, attribution.steps[static_cast<std::size_t>(log.rank)]);
    write_spans(writer, log);
  }
}

}  // namespace tandem::launch
