// SPDX-License-Identifier: Apache-2.0
// The step loop of `drill` on CUDA ranks, with faults of the device:
//   drill_cuda [fault=wedge|fault|late] [rank=R] [step=S] [step_s=X]
// `fault` strikes rank R at step S. wedge: a kernel never ends and holds all SMs; fault: a kernel
// stores to nowhere; late: the rank leaves out its all-reduce, so that the kernels of the others
// wait for it. All of them must end within the deadline of a step.
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "comm/cuda_communicator.h"
#include "comm/watchdog.h"
#include "kernels/device/device_info.h"
#include "kernels/device/log.h"
#include "support/drill_kernels.h"

namespace {

using namespace tandem;
using comm::StageKind;
using Options = std::map<std::string, std::string>;

Options parse(int argc, char** argv) {
  Options options{{"fault", ""}, {"rank", "1"}, {"step", "5"}, {"step_s", "5"}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    options[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return options;
}

void run_steps(const Options& options, comm::MpiSession& session, comm::ControlPlane& control,
               comm::Watchdog& watchdog) {
  CudaOptions cuda;
  cuda.device = session.local_rank() % static_cast<int>(query_devices().devices.size());
  Context<Cuda> ctx(cuda);
  comm::CudaCommunicatorOptions comm_options;
  comm_options.allow_shared_gpu = true;
  comm::Communicator<Cuda> communicator(ctx, control, comm_options);
  const auto watch = watchdog.watch({[&] { return communicator.async_error(); },
                                     [&] { communicator.raise_error(); },
                                     [&] { return communicator.position(); }});
  const Buffer<float, Cuda> data(2048);
  const Buffer<std::int32_t, Cuda> never(1);
  fill_zero(ctx, data.data(), data.size_bytes());
  fill_zero(ctx, never.data(), never.size_bytes());
  ctx.compute().synchronize();
  comm::Progress& progress = watchdog.progress();
  for (int step = 0; step < 1'000'000; ++step) {
    progress.enter(StageKind::kStep, "plan");
    std::vector<std::byte> plan(64);
    control.broadcast(plan);
    progress.set_step(step);
    progress.enter(StageKind::kDevice, "mlp");
    const bool now =
        control.rank() == std::stoi(options.at("rank")) && step == std::stoi(options.at("step"));
    const std::string fault = now ? options.at("fault") : "";
    if (fault == "wedge") testing::launch_wedge(ctx, never.span());
    if (fault == "fault") testing::launch_fault(ctx);
    if (fault != "late") communicator.all_reduce_sum(ctx, data.span());
    ctx.compute().synchronize();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  try {
    comm::MpiSession session(&argc, &argv);
    LogConfig log;
    log.rank = session.rank();
    log.size = session.size();
    log.host = session.host();
    configure_log(log);
    comm::ControlPlane control(session);
    comm::WatchdogConfig config;
    config.deadlines.step_s = std::stod(options.at("step_s"));
    comm::Watchdog watchdog(session, control, config);
    try {
      run_steps(options, session, control, watchdog);
    } catch (const std::exception& error) {
      watchdog.fail(error.what());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "drill_cuda: %s\n", error.what());
    return 2;
  }
  return 0;
}
