# SPDX-License-Identifier: Apache-2.0
"""The same drills under srun: Slurm itself would wait for its own, much longer deadlines."""
import sys
import unittest

import drills
import virtual_cluster
from drills import STAGE, Drill


class FailureUnderSrun(drills.DrillTest):
    def test_ranks_that_end(self):
        self.check_all("srun", [
            Drill("kill", 3, 3, r"rank 3 \(host {host}\) ended unexpectedly, last seen in step \d+"),
            Drill("kill", 0, 3, r"rank 0 \(host {host}\) ended unexpectedly, last seen in step \d+"),
            # It strikes before a heartbeat has carried the step.
            Drill("segv", 2, 3, rf"rank 2 \(host {{host}}\) ended unexpectedly, last seen in {STAGE}"),
            Drill("throw", 2, 3, r"rank 2 \(host {host}\) failed in step 5, mlp, layer 0: the disk"),
        ])

    def test_ranks_and_hosts_that_fall_silent(self):
        silent = r"(ranks 2, 3|rank \d) \(host {host}\) silent for 5.* last seen in step \d+"
        # srun may wait until Slurm gives up the node (SlurmdTimeout, 15 s here).
        self.check_all("srun", [
            Drill("stop", 3, 10, silent),
            Drill("cut", 3, 10, silent, launcher_limit_s=50),
            Drill("lose", 3, 10, silent, launcher_limit_s=50),
            Drill("wedge", 3, 20,
                  r"rank 3 \(host {host}\) made no progress for 15.* in step 5, mlp"),
        ])


if __name__ == "__main__":
    reason = virtual_cluster.why_not(slurm=True)
    if reason:
        print("SKIPPED:", reason)
        sys.exit(77)
    unittest.main()
