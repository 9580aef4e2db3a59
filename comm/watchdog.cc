// SPDX-License-Identifier: Apache-2.0
#include "comm/watchdog.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/launcher_end.h"
#include "comm/own_stage.h"
#include "comm/shared_memory_files.h"
#include "comm/termination_signal.h"
#include "comm/watchdog_link.h"
#include "kernels/device/log.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kBeatInterval{250};
/// When this thread itself did not run for so long, the whole job was probably suspended.
constexpr Seconds kSuspended{3};
/// A connection found lost so soon after that was lost while this rank was stopped.
constexpr Seconds kJustWoken{2};
/// After a rank left with an error the others have this long to leave by themselves.
constexpr Seconds kFollowOut{5};
/// A rank that gets SIGTERM looks so long for the reason: launchers that saw a rank or a host die
/// send it to the others, and SIGKILL a second later. Rank 0 hears from everybody, so it goes
/// first.
constexpr Seconds kTellReason{0.6};
constexpr Seconds kTellReasonFollower{0.8};
/// Silence that is a reason by then; heartbeats come every quarter of a second.
constexpr double kSilentAtTheEnd_s = 1;
/// How long rank 0 looks for the death of a rank behind another's failure, and how long the others
/// wait for rank 0 to tell theirs.
constexpr std::chrono::milliseconds kLastLook{50};
constexpr std::chrono::milliseconds kAnswer{2000};
/// As a shell would say it: 128 + SIGTERM.
constexpr int kTerminatedExitCode = 143;

}  // namespace

class Watchdog::Impl {
 public:
  Impl(const MpiSession& session, ControlPlane& control, WatchdogConfig config)
      : config_(std::move(config)),
        rank_(session.rank()),
        control_(control),
        star_(connect_star(session, control, config_.interfaces)),
        ranks_(star_.hosts.size()),
        heard_(star_.hosts.size(), Clock::now()),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TANDEM_ASSERT(wake_, "eventfd");
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].host = star_.hosts[r];
      ranks_[r].stage = describe(Stage{});
      // Followers watch rank 0 only.
      ranks_[r].left = rank_ != 0 && r != 0 && r != static_cast<std::size_t>(rank_);
    }
    control_.report_to(&progress_,
                       [this](const std::string& text) { fail(text, kBrokenJobExitCode); });
    if (ranks_.size() == 1) return;
    termination_.emplace();
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    control_.report_to(nullptr);
    leaving_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
    // Nobody looks at it any more, and MPI_Finalize may take long.
    const bool told_to_end = told_to_end_at_ || (termination_ && termination_->take());
    termination_.reset();
    if (told_to_end) ::raise(SIGTERM);
  }

  Progress& progress() { return progress_; }

  std::vector<RankState> ranks() const {
    const std::scoped_lock lock(mutex_);
    if (!seen_.empty()) return seen_;
    // Nothing was seen yet, or there is nobody to look.
    const Stage stage = progress_.read();
    RankState own;
    own.host = star_.hosts[index()];
    own.kind = stage.kind;
    own.stage = describe(stage);
    return {own};
  }

  DeviceWatch watch(DeviceHooks hooks) { return {device_, std::move(hooks)}; }

  void leaving_with(int exit_code) { leaving_code_ = exit_code; }

  [[noreturn]] void fail(const std::string& sentence, int exit_code) {
    if (!thread_.joinable()) {
      log_error(sentence);
      leave_process(exit_code);
    }
    fail_soon(own_failure(sentence), exit_code);
    wake();
    // The heartbeat thread ends the process; this is for the case that it cannot.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    leave_process(exit_code);
  }

 private:
  std::size_t index() const { return static_cast<std::size_t>(rank_); }

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.descriptor(), &one, sizeof one);
  }

  std::string own_failure(const std::string& sentence) const {
    return concat("rank ", rank_, " (host ", star_.hosts[index()], ") failed in ",
                  describe(progress_.read()), ": ", sentence);
  }

  /// The first failure is the one that is told.
  void fail_soon(const std::string& text, int exit_code) {
    const std::scoped_lock lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = text;
    failure_code_ = exit_code;
  }

  void run() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals belong to the step thread
    // On a busy host mpirun may kill the others before this thread runs and says why; where it is
    // allowed, this thread goes first.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), -10);
    auto last_turn = Clock::now();
    auto next_beat = last_turn;
    while (true) {
      const auto now = Clock::now();
      if (now - last_turn > kSuspended) forgive(now, now - last_turn);
      last_turn = now;
      receive_frames(now);
      end_if_asked();
      if (leaving_) return send_to_all(FrameType::kLeave, "", leaving_code_);
      update_own_stage(now);
      if (now >= next_beat) {
        if (const std::string error = device_.error(); !error.empty())
          fail_soon(own_failure(error), kBrokenJobExitCode);
        stage_.update_position(device_, ranks_[index()]);
        send_to_all(FrameType::kBeat, ranks_[index()].stage, 0);
        next_beat = now + kBeatInterval;
      }
      if (first_out_ && now - first_out_at_ > kFollowOut)
        end_job(concat("rank ", *first_out_, " (host ",
                       ranks_[static_cast<std::size_t>(*first_out_)].host,
                       ") has left the job with an error"),
                first_out_code_);
      if (const auto verdict = judge_ranks(now)) end_after_verdict(*verdict);
      show_ranks();
      heed_termination(now);
      wait_for_event(next_beat);
    }
  }

  void forgive(Clock::time_point now, Seconds stopped_for) {
    stopped_for_ = stopped_for;
    woke_at_ = now;
    for (auto& time : heard_) time = now;
    stage_.begin_anew(now);
    for (RankState& rank : ranks_) rank.stage_age_s = 0;
  }

  void wait_for_event(Clock::time_point until) {
    std::vector<pollfd> entries{{wake_.descriptor(), POLLIN, 0},
                                {termination_->descriptor(), POLLIN, 0}};
    for (const Link& link : star_.links)
      if (link.open()) entries.push_back({link.descriptor(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    ::poll(entries.data(), entries.size(), std::max(0, static_cast<int>(left.count())));
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.descriptor(), &count, sizeof count);
    if (termination_->take() && !told_to_end_at_) told_to_end_at_ = Clock::now();
  }

  void receive_frames(Clock::time_point now) {
    for (std::size_t r = 0; r < star_.links.size(); ++r) {
      while (const auto frame = star_.links[r].receive()) {
        heard_[r] = now;
        RankState& rank = ranks_[r];
        if (frame->type == FrameType::kFail) fail_received(*frame);
        if (frame->type == FrameType::kLeave) note_leave(*frame, now);
        if (frame->type != FrameType::kBeat) continue;
        rank.kind = frame->kind;
        rank.stage = frame->text.data();
        rank.stage_age_s = frame->stage_age_s;
        rank.position = std::nullopt;
        if (frame->has_position != 0) rank.position = frame->position;
      }
      note_connection(r);
    }
  }

  /// After SIGTERM this rank goes on for a moment, in which `judge_ranks` may find the reason.
  void heed_termination(Clock::time_point now) {
    const Seconds patience = rank_ == 0 ? kTellReason : kTellReasonFollower;
    if (told_to_end_at_ && now - *told_to_end_at_ > patience)
      fail_soon(concat("rank ", rank_, " (host ", ranks_[index()].host,
                       ") was told to end (SIGTERM) in ", ranks_[index()].stage),
                kTerminatedExitCode);
  }

  void note_leave(const Frame& frame, Clock::time_point now) {
    ranks_[static_cast<std::size_t>(frame.rank)].left = true;
    if (frame.exit_code == 0 || first_out_) return;
    first_out_ = frame.rank;
    first_out_code_ = frame.exit_code;
    first_out_at_ = now;
  }

  void note_connection(std::size_t r) {
    ranks_[r].connection_lost = star_.links[r].lost();
    if (ranks_[r].connection_lost && ranks_[r].left) star_.links[r].close();
  }

  void fail_received(const Frame& frame) {
    if (rank_ == 0) return fail_soon(frame.text.data(), frame.exit_code);
    log_info("ended by rank 0: ", frame.text.data());  // rank 0 has printed it
    leave_process(frame.exit_code);
  }

  void update_own_stage(Clock::time_point now) {
    heard_[index()] = now;
    stage_.update(progress_, now, ranks_[index()]);
  }

  std::optional<std::string> judge_ranks(Clock::time_point now) {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      ranks_[r].silent_s = Seconds(now - heard_[r]).count();
    Deadlines deadlines = config_.deadlines;
    if (told_to_end_at_) deadlines.alive_s = kSilentAtTheEnd_s;
    if (rank_ != 0) deadlines.step_s = deadlines.load_s = 0;  // progress is rank 0's business
    return judge(ranks_, deadlines);
  }

  void show_ranks() {
    const std::scoped_lock lock(mutex_);
    seen_ = ranks_;
  }

  void send_to_all(FrameType type, const std::string& text, int exit_code) {
    Frame frame;
    frame.token = star_.token;
    frame.type = type;
    frame.rank = rank_;
    frame.exit_code = exit_code;
    frame.kind = ranks_[index()].kind;
    frame.stage_age_s = ranks_[index()].stage_age_s;
    frame.has_position = ranks_[index()].position.has_value() ? 1 : 0;
    frame.position = ranks_[index()].position.value_or(DevicePosition{});
    frame.set_text(text);
    for (Link& link : star_.links) link.send(frame);
  }

  /// For `fail`: rank 0 ends the job, the others ask it to.
  void end_if_asked() {
    std::string text;
    int exit_code = 0;
    {
      const std::scoped_lock lock(mutex_);
      text = failure_;
      exit_code = failure_code_;
    }
    if (text.empty()) return;
    if (rank_ != 0) send_to_all(FrameType::kFail, text, exit_code);
    // A rank also fails because another one has died: then that one is the reason. Rank 0 answers
    // the others; when it does not, this rank is the only witness.
    const auto deadline = Clock::now() + (rank_ == 0 ? kLastLook : kAnswer);
    const auto heard = [&] { return rank_ == 0 || star_.links[0].open(); };
    while (heard() && !a_rank_is_lost() && Clock::now() < deadline) {
      wait_for_event(deadline);
      receive_frames(Clock::now());
    }
    const auto verdict = a_rank_is_lost() ? judge_ranks(Clock::now()) : std::nullopt;
    if (rank_ == 0) end_job(verdict.value_or(text), verdict ? kBrokenJobExitCode : exit_code);
    if (verdict) log_error(*verdict);
    log_error(text);
    leave_process(exit_code);
  }

  bool a_rank_is_lost() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankState& rank) { return rank.connection_lost && !rank.left; });
  }

  [[noreturn]] void end_after_verdict(const std::string& verdict) {
    const auto out_of_reach = [&](const RankState& rank) {
      return !rank.left && rank.silent_s > kSilentAtTheEnd_s;
    };
    if (std::any_of(ranks_.begin(), ranks_.end(), out_of_reach)) launcher_may_be_stuck_ = true;
    // A rank that was stopped wakes up to find the others gone: it is the culprit, not they.
    if (Clock::now() - woke_at_ < kJustWoken)
      end_job(concat("this rank was stopped for ", static_cast<int>(stopped_for_.count()),
                     " s and the others went on without it"),
              kBrokenJobExitCode);
    end_job(verdict, kBrokenJobExitCode);
  }

  /// Prints, tells the others and leaves.
  [[noreturn]] void end_job(const std::string& text, int exit_code) {
    log_error(text);
    if (rank_ == 0) {
      send_to_all(FrameType::kFail, text, exit_code);
      // A connection closed with unread bytes is reset, which could overtake the frame: wait for
      // the others to hang up.
      const auto deadline = Clock::now() + std::chrono::milliseconds(300);
      const auto anyone = [&] {
        bool open = false;
        for (Link& link : star_.links) {
          while (link.receive()) continue;
          open |= link.open();
        }
        return open;
      };
      while (anyone() && Clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    leave_process(exit_code);
  }

  [[noreturn]] void leave_process(int exit_code) {
    device_.abandon();
    remove_mpi_shared_memory_files();
    if (ranks_.size() > 1) hurry_launcher(launcher_may_be_stuck_);
    ::_exit(exit_code);
  }

  WatchdogConfig config_;
  int rank_;
  ControlPlane& control_;
  Star star_;
  Progress progress_;
  std::vector<RankState> ranks_;
  std::vector<Clock::time_point> heard_;
  OwnStage stage_;
  Seconds stopped_for_{0};  ///< The last time this process did not run for long, and its end.
  Clock::time_point woke_at_{};
  Socket wake_;
  std::optional<TerminationSignal> termination_;  ///< None when this rank is alone.
  std::optional<Clock::time_point> told_to_end_at_;
  std::atomic<bool> launcher_may_be_stuck_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<int> leaving_code_{0};
  std::optional<int> first_out_;  ///< The first rank that left with an error.
  int first_out_code_ = 0;
  Clock::time_point first_out_at_{};
  WatchedDevice device_;
  mutable std::mutex mutex_;  ///< Guards failure_, failure_code_ and seen_.
  std::string failure_;
  int failure_code_ = kBrokenJobExitCode;
  std::vector<RankState> seen_;
  std::thread thread_;
};

Watchdog::Watchdog(const MpiSession& session, ControlPlane& control, WatchdogConfig config)
    : impl_(std::make_unique<Impl>(session, control, std::move(config))) {}

Watchdog::~Watchdog() = default;

Progress& Watchdog::progress() { return impl_->progress(); }

std::vector<RankState> Watchdog::ranks() const { return impl_->ranks(); }

DeviceWatch Watchdog::watch(DeviceHooks hooks) { return impl_->watch(std::move(hooks)); }

void Watchdog::leaving_with(int exit_code) { impl_->leaving_with(exit_code); }

void Watchdog::fail(const std::string& sentence, int exit_code) noexcept {
  impl_->fail(sentence, exit_code);
}

}  // namespace tandem::comm
