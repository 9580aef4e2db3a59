# SPDX-License-Identifier: Apache-2.0
"""The program under a real Slurm of two virtual hosts: srun, the shipped sbatch scripts, scancel."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from virtual_cluster import VirtualCluster, wait_until, why_not

TANDEM = os.environ["TANDEM"]
SOURCE = pathlib.Path(os.environ["TANDEM_SOURCE"])
MODEL = str(SOURCE / "tests/fixtures/models/llama-9q3kv")
SMALL = ["--device", "cpu", "--threads", "1", "--model", MODEL]
ANSWER = [*SMALL, "--prompt", "hello world", "--max-tokens", "12", "--dtype", "float32",
          "--temperature", "0"]
TWO_HOSTS = ["--nodes=2", "--ntasks-per-node=1"]


REQUESTS_UNTIL_REFUSED = """
import json, sys, time, urllib.request
for _ in range(300):  # it listens before all ranks are ready
    try:
        urllib.request.urlopen(sys.argv[1] + "/health")
        break
    except OSError:
        time.sleep(0.1)
body = json.dumps({"prompt": "x", "max_tokens": 200, "ignore_eos": True, "n": 4}).encode()
while True:
    try:
        with urllib.request.urlopen(sys.argv[1] + "/v1/completions", body) as answer:
            print(*{c["finish_reason"] for c in json.load(answer)["choices"]}, flush=True)
    except OSError as error:  # 503 while it drains, then nobody listens
        print("refused")
        break
"""


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(VirtualCluster(hosts=2, slurm=True))
        cls.cluster.env["TANDEM"] = TANDEM

    def run_here(self, argv, **options):
        return self.cluster.run(self.cluster.hosts[0], argv, **options)

    def submit(self, script, options, words, env=None):
        """The job's number, once it has been queued."""
        output = self.cluster.root / f"{script}.out"
        result = self.run_here(["sbatch", "--parsable", f"--output={output}", *options,
                                SOURCE / "launch/slurm" / f"{script}.sbatch", *words], env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip(), output

    def finish(self, job, output, seconds=120):
        """State and output of a job that has ended."""
        wait_until(lambda: not self.run_here(["squeue", "-h", "-j", job]).stdout.strip(), seconds,
                   f"job {job} did not end")
        shown = self.run_here(["scontrol", "show", "job", job]).stdout
        state = next(word for word in shown.split() if word.startswith("JobState="))
        return state.removeprefix("JobState="), output.read_text()

    def test_generate_over_two_hosts_like_one(self):
        one = self.run_here([TANDEM, "generate", "--json", *ANSWER])
        state, text = self.finish(*self.submit("generate", TWO_HOSTS, ["--json", *ANSWER]))
        self.assertEqual(state, "COMPLETED", text)
        result = json.loads(text.splitlines()[-1])
        self.assertEqual(result["ranks"], 2)
        self.assertEqual(result["outputs"], json.loads(one.stdout)["outputs"])

    def test_bench_and_scaling(self):
        state, text = self.finish(*self.submit("bench", TWO_HOSTS, ANSWER, env={"RUNS": "2"}))
        self.assertEqual(state, "COMPLETED", text)
        self.assertIn("2 ranks on 2 hosts", text)
        self.assertRegex(text, r"tokens_per_s +median +[0-9.]+ .* runs 2")
        words = [*SMALL, "--dtype", "float32", "--input-len", "8", "--output-len", "4",
                 "--num-iters", "2", "--json", self.cluster.root / "scaling.json"]
        state, text = self.finish(*self.submit("scaling", TWO_HOSTS, words))
        self.assertEqual(state, "COMPLETED", text)
        rows = json.loads((self.cluster.root / "scaling.json").read_text())["rows"]
        self.assertEqual([row["case"] for row in rows if row["metric"] == "speed_up"],
                         [f"llama-9q3kv f32 tp{ranks} batch1 ctx8" for ranks in (1, 2)])

    def test_serve_with_a_client_in_the_job_drains(self):
        client = ("python3 -c 'import os, urllib.request as r; "
                  "print(r.urlopen(os.environ[\"TANDEM_URL\"] + \"/v1/models\").read())'")
        state, text = self.finish(*self.submit("serve", TWO_HOSTS, SMALL, env={"CLIENT": client}))
        self.assertEqual(state, "COMPLETED", text)
        self.assertIn('"id":"llama-9q3kv"', text)
        self.assertIn("shutting down", text)

    def test_serve_drains_before_the_time_limit(self):
        """Slurm sends the signal, up to half a minute before it is due, while requests run."""
        job, output = self.submit("serve", [*TWO_HOSTS, "--time=1", "--signal=TERM@10"], SMALL,
                                  env={"PORT": "8003"})
        wait_until(lambda: output.exists() and "listening" in output.read_text(), 60, "no server")
        client = self.cluster.popen(
            self.cluster.hosts[1], ["python3", "-c", REQUESTS_UNTIL_REFUSED,
                                    f"http://{self.cluster.hosts[0]}:8003"],
            stdout=subprocess.PIPE, text=True)
        answers, _ = client.communicate(timeout=120)
        state, text = self.finish(job, output)
        self.assertEqual(state, "COMPLETED", text)
        self.assertIn("shutting down", text)
        self.assertNotIn(" error ", text.replace("slurmstepd", ""))
        ends = answers.split()
        self.assertGreater(len(ends), 1)
        self.assertEqual(set(ends[:-1]), {"length"}, "what ran has been finished")
        self.assertEqual(ends[-1], "refused")

    def test_scancel_leaves_nothing(self):
        job, output = self.submit("serve", TWO_HOSTS, SMALL, env={"PORT": "8001"})
        wait_until(lambda: output.exists() and "listening" in output.read_text(), 60, "no server")
        self.run_here(["scancel", job])
        state, _ = self.finish(job, output)
        self.assertEqual(state, "CANCELLED")
        wait_until(lambda: not any(map(self.cluster.pids, self.cluster.hosts)), 30, "left over")
        self.assertEqual(self.cluster.shared_memory_left(), [])

    def test_separate_programs_are_refused(self):
        for kind in ("none", "pmi2"):
            result = self.run_here(["srun", f"--mpi={kind}", "-N2", "-n2", TANDEM, "doctor"])
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("srun --mpi=pmix -n 2 tandem", result.stderr)

    def test_one_task_needs_no_pmix(self):
        result = self.run_here(["srun", "--mpi=none", "-N1", "-n1", TANDEM, "doctor", "--device",
                                "cpu"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_mpirun_inside_an_allocation(self):
        result = self.run_here(
            ["salloc", "-N2", "--ntasks-per-node=1", "mpirun", "--bind-to", "none", TANDEM,
             "generate", "--json", *ANSWER], env={"OMPI_MCA_plm": "slurm"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout.splitlines()[-1])["ranks"], 2)

    def test_launch_submits_a_job(self):
        path = self.cluster.root / "cluster.ini"
        path.write_text("[cluster]\nname = s\nlauncher = slurm\n[hosts]\ncount = 2\n"
                        "ranks_per_host = 1\n[device]\nkind = cpu\n[links]\n"
                        "between_hosts = ethernet\n"
                        "[slurm]\ntime_limit = 5\noptions = --parsable\n")
        result = self.run_here(["sh", "-c", 'cd "$VC_ROOT" && exec "$@"', "sh", TANDEM, "launch",
                                "--cluster", path, "--", "generate", "--json", *ANSWER])
        self.assertEqual(result.returncode, 0, result.stderr)
        job = result.stdout.strip()
        state, text = self.finish(job, self.cluster.root / f"tandem-{job}.out")
        self.assertEqual(state, "COMPLETED", text)
        self.assertEqual(json.loads(text.splitlines()[-1])["ranks"], 2)


if __name__ == "__main__":
    reason = why_not(slurm=True)
    if reason:
        print("SKIPPED:", reason)
        sys.exit(77)
    unittest.main()
