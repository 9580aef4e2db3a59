# SPDX-License-Identifier: Apache-2.0
"""Every way in which a job under mpirun can break ends all of it, in time, with one sentence."""
import sys
import unittest

import drills
import virtual_cluster
from drills import STAGE, Drill


class FailureUnderMpirun(drills.DrillTest):
    def test_ranks_that_end(self):
        ended = rf"\(host {{host}}\) ended unexpectedly, last seen in {STAGE}"
        self.check_all("mpirun", [
            Drill("kill", 3, 3, f"rank 3 {ended}"),
            Drill("kill", 0, 3, f"rank 0 {ended}"),
            Drill("segv", 2, 3, f"rank 2 {ended}"),
            Drill("throw", 2, 3, r"rank 2 \(host {host}\) failed in step 5, mlp, layer 0: the disk"),
            Drill("device", 1, 3,
                  r"rank 1 \(host {host}\) failed in step 5, mlp, layer 0: NCCL: remote process"),
            Drill("term", 3, 3, rf"rank 3 \(host {{host}}\) was told to end \(SIGTERM\) in {STAGE}"),
        ])

    def test_ranks_and_hosts_that_fall_silent(self):
        silent = rf"(ranks 2, 3|rank \d) \(host {{host}}\) silent for 5.* last seen in {STAGE}"
        hung = (r"rank {} \(host {{host}}\) made no progress for 1[45].* in step 5, waiting for tokens, "
                "layer 0: its device did not come to the collective that others are in; ")
        self.check_all("mpirun", [
            Drill("config", 3, 10, r"rank 3 \(host {host}\) has left the job with an error"),
            Drill("config", 0, 10, r"rank 0 \(host {host}\) has left the job with an error"),
            Drill("stop", 3, 10, silent),
            Drill("stop", 0, 10, silent),
            Drill("cut", 3, 10, silent),
            Drill("wedge", 3, 20,
                  r"rank 3 \(host {host}\) made no progress for 15.* in step 5, mlp, layer 0; "
                  r"ranks 0, 1, 2 in step 5, all-reduce, layer 0"),
            Drill("kernel", 0, 20, hung.format(0) + "ranks 1, 2, 3 in step 5"),
            Drill("kernel", 2, 20, hung.format(2) + "ranks 0, 1, 3 in step 5"),
        ])

    def test_a_host_that_is_gone(self):
        # The launch agent dies with the host, so mpirun is the first to notice and tells the ranks
        # to end; they say whom they do not hear any more.
        self.check_all("mpirun", [
            Drill("lose", 3, 10, rf"ranks 2, 3 \(host {{host}}\) silent for .* last seen in {STAGE}")])


if __name__ == "__main__":
    reason = virtual_cluster.why_not()
    if reason:
        print("SKIPPED:", reason)
        sys.exit(77)
    unittest.main()
