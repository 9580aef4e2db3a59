// SPDX-License-Identifier: Apache-2.0
// Open MPI's mpirun and orted end a broken job slowly: with sleeps of a second before, between and
// after the signals to the ranks, also when all ranks have left by themselves, and they wait for
// ever for a daemon on the far side of a dead link. A rank that ends a broken job leaves a small
// process behind that shortens the sleeps and, when others are out of reach, ends the launcher.
#pragma once

namespace tandem::comm {

/// To be called when the reason has been told, just before `_exit`. Does nothing unless the parent
/// is a launcher of Open MPI (Slurm's daemons look after themselves). Returns at once; the process
/// is gone at most 0.2 s after the launcher. `kill_when_stuck`: end the launcher when it is still
/// there after some seconds.
void hurry_launcher(bool kill_when_stuck) noexcept;

}  // namespace tandem::comm
