// SPDX-License-Identifier: Apache-2.0
// A stand-in for the runtime in failure drills: the step loop of an engine (plan broadcast, layers,
// all-reduces) under the watchdog, with faults on demand.
//   drill [steps=N] [fault=throw|config|wedge|segv|diverge|device|kernel] [rank=R] [step=S]
//         [pids=DIR] [step_s=X]
// `fault` strikes rank R at step S. device: a collective fails on the device and is found by asking
// only; letting go of the device then blocks. kernel: a kernel of rank R's device never ends, so
// that all hosts wait for their devices, and the other devices in a collective. With `pids` every
// rank writes its pid to DIR/RANK once it is in step 3, for faults from outside (kill, stop, a link
// cut).
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "comm/watchdog.h"
#include "kernels/device/cpu/context.h"
#include "kernels/device/log.h"

namespace {

using tandem::comm::StageKind;
using Options = std::map<std::string, std::string>;

Options parse(int argc, char** argv) {
  Options options{{"steps", "1000000"}, {"fault", ""}, {"rank", "1"},
                  {"step", "5"},        {"pids", ""},  {"step_s", "15"}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    options[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return options;
}

void strike(const std::string& fault) {
  if (fault == "throw") throw tandem::Error("the disk is on fire");
  if (fault == "config") throw tandem::ConfigError("this rank alone got a wrong option");
  if (fault == "segv") ::raise(SIGSEGV);
  volatile bool for_ever = fault == "wedge" || fault == "device";
  while (for_ever) continue;
}

/// What the devices of a job would tell in which the victim's hangs before the all-reduce of
/// `step`.
tandem::comm::DevicePosition position_at(int step, bool victim) {
  const auto done = static_cast<std::uint32_t>(2 * step);
  return {victim ? done : done + 1, done};
}

void run_steps(const Options& options, tandem::comm::ControlPlane& control,
               tandem::comm::Watchdog& watchdog) {
  std::atomic<bool> device_failed{false};
  const bool victim = control.rank() == std::stoi(options.at("rank"));
  const auto watch = watchdog.watch(
      {[&] { return device_failed ? std::string("NCCL: remote process exited") : std::string(); },
       [] { std::this_thread::sleep_for(std::chrono::hours(1)); },
       [&] { return std::optional(position_at(std::stoi(options.at("step")), victim)); }});
  tandem::comm::Communicator<tandem::Cpu> communicator(control);
  tandem::Context<tandem::Cpu> ctx(1);
  tandem::comm::Progress& progress = watchdog.progress();
  for (int step = 0; step < std::stoi(options.at("steps")); ++step) {
    progress.set_layer(-1);
    progress.enter(StageKind::kStep, "plan");
    std::vector<std::byte> plan(64);
    control.broadcast(plan);
    progress.set_step(step);
    if (step == 3 && !options.at("pids").empty())
      std::ofstream(options.at("pids") + "/" + std::to_string(control.rank()))
          << ::getpid() << "\n";
    for (int layer = 0; layer < 2; ++layer) {
      progress.set_layer(layer);
      const bool at_step = step == std::stoi(options.at("step"));
      if (at_step && options.at("fault") == "kernel") {
        progress.enter(StageKind::kDevice, "waiting for tokens");
        strike("wedge");
      }
      progress.enter(StageKind::kStep, "mlp");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const bool now = victim && at_step;
      if (now && options.at("fault") == "device") device_failed = true;
      if (now) strike(options.at("fault"));
      if (now && options.at("fault") == "diverge") control.barrier();
      std::vector<float> data(2048, static_cast<float>(control.rank() + 1));
      communicator.all_reduce_sum(ctx, tandem::Span<float, tandem::Cpu>{data.data(), 2048});
      const int ranks = control.size();
      TANDEM_ASSERT(data[2047] == static_cast<float>(ranks * (ranks + 1) / 2), data[2047]);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  try {
    tandem::comm::MpiSession session(&argc, &argv);
    tandem::LogConfig log;
    log.rank = session.rank();
    log.size = session.size();
    log.host = session.host();
    tandem::configure_log(log);
    tandem::comm::ControlPlane control(session);
    tandem::comm::WatchdogConfig config;
    config.deadlines.step_s = std::stod(options.at("step_s"));
    tandem::comm::Watchdog watchdog(session, control, config);
    try {
      run_steps(options, control, watchdog);
    } catch (const tandem::ConfigError&) {
      watchdog.leaving_with(2);
      throw;
    } catch (const std::exception& error) {
      watchdog.fail(error.what());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "drill: %s\n", error.what());
    return 2;
  }
  return 0;
}
