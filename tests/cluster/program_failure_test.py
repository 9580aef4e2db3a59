# SPDX-License-Identifier: Apache-2.0
"""The real program on two virtual hosts: a rank killed in the middle of its work, one killed while
rows are exchanged, and one killed while the server is idle, end the job with rank, host and stage
named."""
import os
import pathlib
import re
import signal
import sys
import time
import unittest

from virtual_cluster import VirtualCluster, wait_until, why_not

TANDEM = os.environ["TANDEM"]
MODEL = str(pathlib.Path(os.environ["TANDEM_SOURCE"]) / "tests/fixtures/models/llama-9q3kv")
SMALL = ["--device", "cpu", "--threads", "1", "--model", MODEL]


class ProgramFailure(unittest.TestCase):
    def kill_rank_1(self, words, ready):
        """Output, exit code and seconds from the kill to the end of everything."""
        with VirtualCluster(hosts=2) as cluster:
            log = cluster.root / "output"
            with open(log, "w") as output:
                job = cluster.popen(cluster.hosts[0], [
                    "mpirun", "--hostfile", cluster.hostfile(1), "-n", "2", "--map-by",
                    "ppr:1:node", TANDEM, *words],
                    stdout=output, stderr=output)
            wait_until(lambda: ready(log.read_text(errors="replace")), 60, "the program did not start")
            time.sleep(1.5)  # six heartbeats, which carry the stage
            victims = [pid for pid in cluster.pids(cluster.hosts[1])
                       if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "tandem"]
            self.assertEqual(len(victims), 1)
            os.kill(victims[0], signal.SIGKILL)
            start = time.monotonic()
            wait_until(lambda: job.poll() is not None and not any(map(cluster.pids, cluster.hosts)),
                       20, "the job did not end")
            seconds = time.monotonic() - start
            text = log.read_text(errors="replace").replace(cluster.hosts[1], "HOST")
            self.assertNotEqual(job.returncode, 0)
            self.assertLess(seconds, 3)
            self.assertEqual(cluster.shared_memory_left(), [])
            return text

    def test_killed_in_a_step(self):
        prompts = [word for i in range(300) for word in ("--prompt", f"story number {i}")]
        text = self.kill_rank_1(
            ["generate", *SMALL, *prompts, "--ignore-eos", "--max-tokens", "230", "--log-rank", "all",
             "--max-num-seqs", "4"], lambda output: len(output) > 100)
        self.assertRegex(text, r"rank 1 \(host HOST\) ended unexpectedly, last seen in step \d+, ")
        self.assertRegex(text, r"; rank 0 in step \d+, [a-z -]+")

    def test_killed_while_rows_are_exchanged(self):
        text = self.kill_rank_1(
            ["bench", "throughput", *SMALL, "--steady-state", "--max-concurrency", "4", "--duration",
             "600", "--input-len", "200", "--output-len", "1", "--overlap", "on"],
            lambda output: re.search(r"requests (ended|have begun)", output))
        self.assertRegex(text, r"rank 1 \(host HOST\) ended unexpectedly, last seen in step \d+, ")
        self.assertRegex(text, r"; rank 0 in step \d+, [a-z -]+")

    def test_killed_while_the_server_is_idle(self):
        text = self.kill_rank_1(["serve", *SMALL, "--port", "8002"],
                                lambda output: "listening" in output)
        self.assertRegex(text, r"rank 1 \(host HOST\) ended unexpectedly, last seen in broadcast of a "
                               r"plan; rank 0 in waiting for requests")


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("SKIPPED:", reason)
        sys.exit(77)
    unittest.main()
