// SPDX-License-Identifier: Apache-2.0
// Recording of one run, from before the engine is made until its report is written. All ranks make
// one with equal options and finish it together; without options it does nothing. `--waits FILE`
// writes FILE (JSON), and beside it the picture (.svg) and the trace (.trace.json).
#pragma once

#include <boost/program_options.hpp>
#include <memory>
#include <string>

#include "comm/clock_map.h"
#include "launch/command.h"
#include "launch/engine_factory.h"
#include "launch/waits/report.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {

struct WaitsOptions {
  std::string file;    ///< --waits: empty: no files.
  bool table = false;  ///< Print the table on standard output instead of standard error.
  bool wanted() const { return table || !file.empty(); }

  /// Adds --waits to `options`; the parsed value lands in this object.
  void add_to(boost::program_options::options_description& options);
};

/// What a report says about its run.
struct WaitsFacts {
  std::string model, command;
  std::int64_t first_step = 0;  ///< Steps before it are left out (warm-up).
};

class WaitsSession {
 public:
  /// Collective when wanted. ConfigError on all ranks when rank 0 cannot write the file.
  WaitsSession(Ranks& ranks, const WaitsOptions& options);
  WaitsSession(const WaitsSession&) = delete;
  WaitsSession& operator=(const WaitsSession&) = delete;

  /// For EngineConfig and EngineLoop; null when nothing is wanted.
  Recorder* recorder() { return recorder_.get(); }

  /// Before the first step, so that the end is short: who stops a server may not wait for a second.
  /// Collective when wanted: measures what CPU ranks reach, all together, as in a step: they share
  /// the memory of their host. `device` is "cpu" or "cuda", `threads` of a CPU rank.
  void calibrate(const MadeEngine& made, const std::string& device, int threads);
  /// After the last step. Collective when wanted: gathers, attributes, and on rank 0 writes.
  void finish(const MadeEngine& made, const WaitsFacts& facts);

 private:
  runtime::RankLog own_log(const MadeEngine& made);
  void write(const std::vector<runtime::RankLog>& logs, const WaitsFacts& facts);

  Ranks& ranks_;
  WaitsOptions options_;
  std::unique_ptr<Recorder> recorder_;
  comm::ClockOffset first_;
  runtime::RankCeilings ceilings_;
};

/// `FILE.json` and `.svg` -> `FILE.svg`; names without .json get the ending appended.
std::string beside(const std::string& file, const std::string& ending);

}  // namespace tandem::launch
