// SPDX-License-Identifier: Apache-2.0
// Open MPI's mpirun and orted wait for ever for a daemon on the far side of a dead link, and even
// ignore one SIGTERM then. A rank that ends because others are out of reach leaves a small process
// behind that ends its own launcher, if that is still there a few seconds later.
#pragma once

namespace tandem::comm {

/// Does nothing unless the parent is a launcher of Open MPI (Slurm's daemons look after
/// themselves). Returns at once.
void end_launcher_if_stuck() noexcept;

}  // namespace tandem::comm
