// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "kernels/device/error.h"
#include "support/fake_engine.h"
#include "support/mpi_world.h"

namespace tandem::runtime {
namespace {

using testing::FakeEngine;
using Tokens = std::vector<std::int32_t>;
constexpr std::int32_t kVocab = 500;
constexpr std::int32_t kEos = 7;

EngineLimits limits(bool synchronous) {
  EngineLimits limits;
  limits.max_num_seqs = 6;
  limits.max_num_batched_tokens = 100;
  limits.max_model_len = 400;
  limits.num_chunks = 16;
  limits.mapped_chunks = 3;
  limits.growth_chunks = 2;
  limits.synchronous = synchronous;
  return limits;
}

Request make_request(int salt, int prompt_tokens, int max_tokens) {
  Request request;
  for (int i = 0; i < prompt_tokens; ++i) request.prompt.push_back(10 + (i * 13 + salt) % 400);
  request.params.max_tokens = max_tokens;
  return request;
}

Tokens alone(const Request& request, const EngineLimits& l) {
  return FakeEngine::single_run(request, {kEos}, 0, l.max_model_len, kVocab);
}

class EngineLoopTest : public ::testing::TestWithParam<bool> {
 protected:
  EngineLoopTest()
      : control_(tandem::testing::world()),
        limits_(limits(GetParam())),
        engine_(limits_, kVocab),
        loop_(control_, engine_, SchedulerConfig{limits_, true, {kEos}}) {}

  comm::ControlPlane control_;
  EngineLimits limits_;
  FakeEngine engine_;
  EngineLoop loop_;
};

TEST_P(EngineLoopTest, RunsUntilIdleAgainAndAgain) {
  if (control_.rank() != 0) {
    loop_.follow();
    EXPECT_EQ(loop_.stats().steps, engine_.num_steps());
    EXPECT_GT(engine_.num_steps(), 64) << "the digests were compared";
    return;
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<Tokens> answers(10);
    for (int i = 0; i < 10; ++i) {
      loop_.submit(make_request(i, 20 + 9 * i, 60), [&answers, i](const TokenEvent& event) {
        answers[static_cast<std::size_t>(i)].push_back(event.token);
      });
    }
    loop_.run_until_idle();
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(answers[static_cast<std::size_t>(i)],
                alone(make_request(i, 20 + 9 * i, 60), limits_));
    }
  }
  loop_.close();
  const LoopStats stats = loop_.stats();
  EXPECT_EQ(stats.steps, engine_.num_steps());
  EXPECT_EQ(stats.scheduler.used_chunks, 0);
  EXPECT_GT(stats.scheduler.prefix_hits_tokens, 0);
}

TEST_P(EngineLoopTest, ServesOtherThreadsUntilStopped) {
  if (control_.rank() != 0) {
    loop_.follow();
    return;
  }
  constexpr int kClients = 4, kEach = 40;
  std::atomic<int> wrong{0}, finished{0}, cancelled{0};
  const auto client = [&](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    for (int i = 0; i < kEach; ++i) {
      const Request request =
          make_request(static_cast<int>(random() % 50), 1 + static_cast<int>(random() % 200),
                       1 + static_cast<int>(random() % 60));
      std::mutex mutex;
      std::condition_variable changed;
      Tokens answer;
      bool done = false;
      const RequestId id = loop_.submit(request, [&](const TokenEvent& event) {
        const std::lock_guard lock(mutex);
        answer.push_back(event.token);
        done = event.finish != FinishReason::kNone;
        changed.notify_one();
      });
      std::unique_lock lock(mutex);
      const bool give_up = random() % 5 == 0;
      changed.wait(lock, [&] { return done || (give_up && answer.size() > 3); });
      if (done) {
        ++finished;
        wrong += answer != alone(request, limits_) ? 1 : 0;
        continue;
      }
      // The sink uses this frame: leave only when another request has been through the loop.
      lock.unlock();
      loop_.cancel(id);
      std::atomic<bool> seen{false};
      loop_.submit(make_request(1, 1, 1), [&seen](const TokenEvent&) { seen = true; });
      while (!seen) std::this_thread::yield();
      ++cancelled;
    }
  };
  std::thread clients([&] {
    std::vector<std::thread> threads;
    for (int c = 0; c < kClients; ++c) threads.emplace_back(client, c);
    for (auto& thread : threads) thread.join();
    loop_.stop();
  });
  loop_.run();
  clients.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(finished + cancelled, kClients * kEach);
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(loop_.stats().scheduler.used_chunks, 0);
}

TEST_P(EngineLoopTest, StopAbortsWhatIsLeft) {
  if (control_.rank() != 0) {
    loop_.follow();
    return;
  }
  Request request = make_request(1, 10, 300);
  request.params.ignore_eos = true;
  request.params.n = 2;
  int tokens = 0, aborts = 0;
  loop_.submit(request, [&](const TokenEvent& event) {
    tokens += event.token >= 0 ? 1 : 0;
    aborts += event.finish == FinishReason::kAbort ? 1 : 0;
    if (tokens == 20) loop_.stop();
  });
  loop_.run();
  EXPECT_EQ(aborts, 2);
  EXPECT_LT(tokens, 30);
}

TEST_P(EngineLoopTest, CancellingOneSampleLeavesTheOthers) {
  if (control_.rank() != 0) {
    loop_.follow();
    return;
  }
  Request request = make_request(1, 10, 50);
  request.params.ignore_eos = true;
  request.params.n = 3;
  std::vector<int> tokens(3);
  RequestId id = 0;
  id = loop_.submit(request, [&](const TokenEvent& event) {
    ++tokens[static_cast<std::size_t>(event.sample)];
    if (event.sample == 1 && tokens[1] == 5) loop_.cancel(id, 1);
  });
  loop_.run_until_idle();
  loop_.close();
  EXPECT_EQ(tokens, (std::vector<int>{50, 5, 50}));
}

TEST_P(EngineLoopTest, ARankThatSamplesOtherTokensIsNamed) {
  if (control_.size() < 2) GTEST_SKIP() << "needs two ranks";
  const int odd = control_.size() - 1;
  FakeEngine engine(limits_, control_.rank() == odd ? kVocab - 1 : kVocab);
  EngineLoop loop(control_, engine, SchedulerConfig{limits_, true, {}});
  const auto work = [&] {
    if (control_.rank() != 0) return loop.follow();
    loop.submit(make_request(1, 10, 300), [](const TokenEvent&) {});
    loop.run_until_idle();
  };
  try {
    work();
    ADD_FAILURE() << "nobody noticed";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find(concat("rank ", odd, " left")), std::string::npos)
        << error.what();
  }
  if (control_.rank() == 0) {
    loop_.close();
  } else {
    loop_.follow();
  }
}

TEST_P(EngineLoopTest, AnIdleJobSleeps) {
  const auto cpu_s = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  control_.barrier();
  const double before = cpu_s();
  if (control_.rank() == 0) {
    std::thread stopper([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      loop_.stop();
    });
    loop_.run();
    stopper.join();
  } else {
    loop_.follow();
  }
  EXPECT_LT(cpu_s() - before, 0.05);
}

/// A device that fails in its third step.
class FailingEngine : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;
  StepOutput collect() override {
    if (++collected_ == 3) throw Error("the device is on fire");
    return FakeEngine::collect();
  }

 private:
  int collected_ = 0;
};

TEST_P(EngineLoopTest, FaultsAreToldBeforeTheEngineIsUnwound) {
  struct Told : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  FailingEngine engine(limits_, kVocab);
  EngineLoop loop(control_, engine, SchedulerConfig{limits_, true, {kEos}});
  // A watchdog would end the process here.
  control_.report_to(nullptr, [](const std::string& text) { throw Told(text); });
  try {
    if (control_.rank() == 0) {
      loop.submit(make_request(0, 20, 60), [](const TokenEvent&) {});
      loop.run_until_idle();
    } else {
      loop.follow();
    }
    FAIL() << "nothing was told";
  } catch (const Told& told) {
    EXPECT_STREQ(told.what(), "the device is on fire");
  }
  control_.report_to(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineLoopTest, ::testing::Values(false, true),
                         [](const auto& kind) { return kind.param ? "Synchronous" : "Device"; });

TEST(StepDigest, OddRanksAreThoseOutsideTheMajority) {
  EXPECT_TRUE(odd_ranks({"a", "a", "a"}).empty());
  EXPECT_EQ(odd_ranks({"a", "b", "b"}), (std::vector<int>{0}));
  EXPECT_EQ(odd_ranks({"a", "b"}), (std::vector<int>{1}));
  EXPECT_EQ(odd_ranks({"a", "b", "a", "c"}), (std::vector<int>{1, 3}));
}

}  // namespace
}  // namespace tandem::runtime
