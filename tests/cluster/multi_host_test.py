# SPDX-License-Identifier: Apache-2.0
"""The program under mpirun on three virtual hosts: same answers as on one, a report on all hosts,
launching from a cluster file and from the shipped script."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from virtual_cluster import VirtualCluster, why_not

TANDEM = os.environ["TANDEM"]
SOURCE = pathlib.Path(os.environ["TANDEM_SOURCE"])
MODEL = str(SOURCE / "tests/fixtures/models/llama-9q3kv")
# float32: the answers of different rank counts are equal to the last token.
GENERATE = ["generate", "--device", "cpu", "--threads", "1", "--dtype", "float32", "--model", MODEL,
            "--prompt", "hello world", "--max-tokens", "12", "--ignore-eos", "--temperature", "0",
            "--json"]

CLUSTER_FILE = """[cluster]
name = virtual
launcher = mpirun
[hosts]
names = {hosts}
ranks_per_host = 1
[device]
kind = cpu
[links]
between_hosts = ethernet
between_hosts_gbyte_per_s = 0.01
[network]
interface = eth0
"""


def answer(text):
    return json.loads(text)["outputs"][0]["token_ids"]


class MultiHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(VirtualCluster(hosts=3))
        env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        cls.expected = answer(subprocess.run([TANDEM, *GENERATE], env=env, check=True, text=True,
                                             capture_output=True).stdout)

    def run_on_hosts(self, argv, **options):
        return self.cluster.run(self.cluster.hosts[0], argv, **options)

    def mpirun(self, per_host, words, **options):
        hosts = len(self.cluster.hosts)
        return self.run_on_hosts(
            ["mpirun", "--hostfile", self.cluster.hostfile(per_host), "-n", str(hosts * per_host),
             "--map-by", f"ppr:{per_host}:node", *words], **options)

    def test_three_hosts_answer_like_one(self):
        result = self.mpirun(1, [TANDEM, *GENERATE])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(answer(result.stdout), self.expected)
        self.assertEqual(json.loads(result.stdout)["ranks"], 3)

    def test_doctor_sees_every_host(self):
        result = self.mpirun(2, [TANDEM, "doctor", "--device", "cpu", "--json"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual([place["host"] for place in report["placement"]],
                         [host for host in self.cluster.hosts for _ in range(2)])
        checks = {check["topic"]: check for check in report["checks"]}
        self.assertEqual(checks["collectives"]["status"], "green")
        self.assertIn("eth0 10.77.0.12", checks["interfaces"]["detail"])
        self.assertEqual(len(report["collectives"]), 4)

    def test_an_interface_that_leads_nowhere_is_passed_over(self):
        result = self.mpirun(1, [TANDEM, "doctor", "--device", "cpu", "--interface", "lo"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_launch_from_a_cluster_file(self):
        path = self.cluster.root / "cluster.ini"
        path.write_text(CLUSTER_FILE.format(hosts=",".join(self.cluster.hosts)))
        words = [TANDEM, "launch", "--cluster", path, "--ranks", "2", "--", *GENERATE]
        result = self.run_on_hosts(words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(answer(result.stdout), self.expected)
        self.assertEqual(json.loads(result.stdout)["ranks"], 2)
        dry = self.run_on_hosts([*words[:4], "--dry-run", *words[4:]])
        self.assertIn(f"{self.cluster.hosts[1]} slots=1", dry.stdout)
        self.assertIn("mpirun -n 2 --hostfile", dry.stdout)
        path.write_text(CLUSTER_FILE.replace("kind =", "king ="))
        wrong = self.run_on_hosts(words)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("cluster.ini:8: [device] king: unknown key; did you mean kind?", wrong.stderr)

    def test_the_shipped_script(self):
        result = self.run_on_hosts(
            [SOURCE / "launch/mpirun/run.sh", self.cluster.hostfile(1), "-i", "eth0", "--",
             *GENERATE], env={"TANDEM": TANDEM})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(answer(result.stdout), self.expected)

    def test_wrong_arguments_end_every_rank(self):
        result = self.mpirun(1, [TANDEM, *GENERATE, "--tensor-parallel-size", "2"])
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr.count("mpirun -n 2 tandem generate"), 1, result.stderr)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("SKIPPED:", reason)
        sys.exit(77)
    unittest.main()
