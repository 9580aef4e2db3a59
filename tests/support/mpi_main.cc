// SPDX-License-Identifier: Apache-2.0
// GoogleTest's main for MPI tests: rank 0 prints, the failures of all ranks decide the exit code.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <memory>

#include "support/mpi_world.h"

namespace {

std::unique_ptr<tandem::comm::MpiSession>& session() {
  static std::unique_ptr<tandem::comm::MpiSession> instance;
  return instance;
}

/// Prints failures of ranks other than 0, one line each, so that nothing is lost.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_,
                   result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                   result.message());
  }

 private:
  int rank_;
};

}  // namespace

const tandem::comm::MpiSession& tandem::testing::world() { return *session(); }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  session() = std::make_unique<tandem::comm::MpiSession>(&argc, &argv);
  const int rank = session()->rank();
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  session().reset();
  return failed;
}
