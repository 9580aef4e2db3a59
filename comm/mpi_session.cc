// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_session.h"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "comm/mpi_check.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::comm {
namespace {

constexpr std::chrono::seconds kStartLimit{120};
constexpr std::chrono::seconds kEndLimit{30};
constexpr int kUnreachableExitCode = 71;

/// MPI's start and end wait for all ranks, and a host that cannot be reached makes that for ever.
class DeadlineGuard {
 public:
  DeadlineGuard(std::chrono::seconds limit, std::string text)
      : thread_([this, limit, text = std::move(text)] {
          std::unique_lock lock(mutex_);
          if (condition_.wait_for(lock, limit, [this] { return done_; })) return;
          log_error(text);
          ::_exit(kUnreachableExitCode);
        }) {}
  DeadlineGuard(const DeadlineGuard&) = delete;
  DeadlineGuard& operator=(const DeadlineGuard&) = delete;
  ~DeadlineGuard() {
    {
      const std::scoped_lock lock(mutex_);
      done_ = true;
    }
    condition_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool done_ = false;
  std::thread thread_;
};

/// A number in the environment, 0 when absent.
int number_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

bool has(const char* name) { return std::getenv(name) != nullptr; }

/// The launcher's own count of ranks on this host, 0 when there is none. Only a hint: it decides
/// how MPI waits, before MPI can be asked.
int ranks_on_host_hint() {
  const int local = number_of("OMPI_COMM_WORLD_LOCAL_SIZE");
  return local > 0 ? local : number_of("SLURM_NTASKS_PER_NODE");
}

/// Cores of the host; affinity does not count, because mpirun narrows it to one core a rank.
int cores() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

/// srun without PMIx starts processes that cannot find each other. Open MPI ends such a process
/// inside MPI_Init with a text about PMI support, so this is looked at before. One task alone needs
/// nobody: without the step's number Open MPI does not take it for a part of a job.
void look_at_slurm_step() {
  const int tasks = number_of("SLURM_STEP_NUM_TASKS");
  if (has("PMIX_RANK") || has("OMPI_COMM_WORLD_SIZE") || tasks == 0) return;
  if (tasks == 1) {
    ::unsetenv("SLURM_STEP_ID");
    return;
  }
  throw ConfigError(
      concat("srun started ", tasks, " processes without PMIx, so they are ", tasks,
             " separate programs and not one job; start them with: srun --mpi=pmix -n ", tasks,
             " tandem ..."));
}

/// Another MPI's launcher: every process thinks that it is alone.
void refuse_singletons(int size) {
  if (size > 1) return;
  if (const int meant = number_of("OMPI_COMM_WORLD_SIZE"); meant > 1)
    throw ConfigError(
        concat("mpirun started ", meant,
               " processes, but MPI sees one each: mpirun belongs to another Open MPI "
               "than the one tandem is linked with (see `ldd $(which tandem) | grep "
               "mpi`); start it with the mpirun of that installation: mpirun -n ",
               meant, " tandem ..."));
  if (const int meant = number_of("PMI_SIZE"); meant > 1)
    throw ConfigError(
        concat("the launcher started ", meant,
               " processes through PMI, but tandem is built with Open MPI, which needs "
               "PMIx; start it with: mpirun.openmpi -n ",
               meant, " tandem ... (or srun --mpi=pmix -n ", meant, " tandem ...)"));
  if (const int meant = number_of("SLURM_STEP_NUM_TASKS"); meant > 1)
    throw ConfigError(
        concat("srun started ", meant,
               " processes, but MPI sees one each: Slurm's PMIx and Open MPI's do not "
               "agree; start them with: srun --mpi=pmix -n ",
               meant, " tandem ..."));
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  look_at_slurm_step();
  if (ranks_on_host_hint() > cores()) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  under_launcher_ = has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK");
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  host_ = name;
  const DeadlineGuard guard(
      kStartLimit, concat("host ", host_, ": MPI did not start within ", kStartLimit.count(),
                          " s: a rank did not arrive, or the hosts cannot reach each other; name "
                          "the network between them with: export OMPI_MCA_btl_tcp_if_include=NAME "
                          "OMPI_MCA_oob_tcp_if_include=NAME"));
  int provided = 0;
  TANDEM_CHECK_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  TANDEM_CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  TANDEM_CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  try {
    refuse_singletons(size_);
  } catch (const ConfigError&) {
    MPI_Finalize();
    throw;
  }
  MPI_Comm local = MPI_COMM_NULL;
  TANDEM_CHECK_MPI(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
  TANDEM_CHECK_MPI(MPI_Comm_rank(local, &local_rank_));
  TANDEM_CHECK_MPI(MPI_Comm_size(local, &local_size_));
  MPI_Comm_free(&local);
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  const DeadlineGuard guard(kEndLimit,
                            concat("rank ", rank_, " (host ", host_, ") waited ", kEndLimit.count(),
                                   " s for the other ranks to end; ending alone"));
  MPI_Finalize();
}

}  // namespace tandem::comm
