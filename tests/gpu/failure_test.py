# SPDX-License-Identifier: Apache-2.0
"""Failure drills with a rank on each GPU, or two that share one (right, but slow), or RANKS: the job
ends in time with one sentence, and nothing is left on the GPUs, though kernels of the surviving
ranks were waiting for the other."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

DRILL = str(served.BUILD / "drill_cuda")
MPIRUN = str(served.SOURCE / "tests/support/mpirun.sh")


def smi(query):
    if shutil.which("nvidia-smi") is None:
        return []
    done = subprocess.run(["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, timeout=30)
    return done.stdout.split() if done.returncode == 0 else []


DECODE = ["generate", "--ignore-eos", "--max-tokens", "19000", "--log-rank", "all",
          *(word for i in range(8) for word in ("--prompt", f"story number {i}"))]
# A steady state makes its prompts one by one: a whole set of them is made up before the first step.
PREFILL = ["bench", "throughput", "--steady-state", "--max-concurrency", "8", "--duration", "600",
           "--input-len", "8000", "--output-len", "1", "--max-num-batched-tokens", "8000",
           "--overlap", "on", "--verbose"]
PROGRAMS = {pathlib.Path(path).name[:15] for path in (served.TANDEM, DRILL)}  # as /proc has them
GPUS = len(smi("gpu=index"))
RANKS = int(os.environ.get("RANKS", max(2, GPUS)))
SHARED = ["--allow-shared-gpu"] if GPUS < RANKS else []


def ranks_below(tag):
    """{rank: pid} of the programs that were started with `tag` in their environment."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if (folder / "comm").read_text().strip() not in PROGRAMS:
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
            if f"DRILL={tag}".encode() not in environment:
                continue
            rank = [word for word in environment if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
            found[int(rank[0].split(b"=")[1])] = int(folder.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError, IndexError):
            continue
    return found


@unittest.skipIf(not smi("gpu=index"), "needs a GPU")
class FailureOnGpus(unittest.TestCase):
    def start(self, log, tag, command):
        with open(log, "w") as output:
            return subprocess.Popen([MPIRUN, str(RANKS), *command], stdout=output, stderr=output,
                                    env=dict(os.environ, DRILL=tag), start_new_session=True)

    def end_of(self, job, tag, pids, begin, limit_s, before, log, message):
        """Waits until nothing of the job is left, in time, on hosts and GPUs."""
        try:
            served.wait_until(lambda: job.poll() is not None and not ranks_below(tag),
                              "the job ends", limit_s + 10)
            seconds = time.monotonic() - begin
        finally:
            for pid in ranks_below(tag).values():
                os.kill(pid, signal.SIGKILL)
        text = log.read_text(errors="replace")
        print(f"{self.id().split('.')[-1]}: {seconds:.1f} s, code {job.returncode}", flush=True)
        self.assertLess(seconds, limit_s, text[-2000:])
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(text, re.compile(message))
        served.wait_until(lambda: not set(smi("compute-apps=pid")) & set(map(str, pids)),
                          "no process of the job is left on a GPU", 5)
        for now, was in zip(smi("gpu=memory.used"), before):
            self.assertLess(int(now), was + 300, "memory of the job is left on a GPU")

    def drill(self, strike, rank, limit_s, message, command=DECODE,
              works=lambda text: len(text) > 4000):
        """Strikes `rank` when the log tells of steps, and six heartbeats, which carry the stage."""
        before = [int(mib) for mib in smi("gpu=memory.used")]
        tag = f"{os.getpid()}-{time.monotonic_ns()}"
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            model = served.endless_model(pathlib.Path(folder))
            job = self.start(log, tag, [served.TANDEM, *command, *model, "--device", "cuda", *SHARED])
            served.wait_until(lambda: works(log.read_text(errors="replace")), "the ranks work", 60)
            time.sleep(1.5)
            pids = ranks_below(tag)
            self.assertEqual(sorted(pids), list(range(RANKS)), log.read_text(errors="replace")[-2000:])
            begin = time.monotonic()
            os.kill(pids[rank], strike)
            self.end_of(job, tag, pids.values(), begin, limit_s, before, log, message)

    def kernel_drill(self, fault, rank, limit_s, message):
        """A fault of the rank's device in step 5, where a step may take 5 s."""
        before = [int(mib) for mib in smi("gpu=memory.used")]
        tag = f"{os.getpid()}-{time.monotonic_ns()}"
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            job = self.start(log, tag, [DRILL, f"fault={fault}", f"rank={rank}"])
            served.wait_until(lambda: len(ranks_below(tag)) == RANKS or job.poll() is not None,
                              "the ranks run", 30)
            self.end_of(job, tag, ranks_below(tag).values(), time.monotonic(), limit_s, before,
                        log, message)

    def test_a_wedged_kernel(self):
        # All hosts wait for their GPU in the same step: it is the GPUs that tell who is at fault.
        for rank in (1, 0):
            others = ", ".join(str(r) for r in range(RANKS) if r != rank)
            self.kernel_drill(
                "wedge", rank, 25,
                rf"rank {rank} \(host .*\) made no progress for .* in step 5, mlp: its device did not "
                rf"come to the collective that others are in; ranks? {others} in step 5, mlp")

    def test_a_collective_that_a_rank_leaves_out(self):
        self.kernel_drill(
            "late", 1, 25, r"rank 1 \(host .*\) is in step 5, broadcast of a plan and did not come to "
            r"the collective that devices have waited in for ")

    def test_a_kernel_that_faults(self):
        self.kernel_drill("fault", 1, 15, r"rank 1 \(host .*\) failed in step 5, mlp: .*cuda")

    def test_a_killed_rank(self):
        for rank in (1, 0):
            self.drill(signal.SIGKILL, rank, 4,
                       rf"rank {rank} \(host .*\) ended unexpectedly, last seen in step \d+, ")

    def test_killed_while_rows_are_exchanged(self):
        # The survivor's stream waits for a flag that nobody will write.
        self.drill(signal.SIGKILL, 1, 4,
                   r"rank 1 \(host .*\) ended unexpectedly, last seen in step \d+, ", PREFILL,
                   lambda text: re.search(r"requests (ended|have begun)", text))

    def test_a_stopped_rank(self):
        self.drill(signal.SIGSTOP, 1, 12, r"rank 1 \(host .*\) silent for .* last seen in step \d+")

    def test_a_rank_that_is_told_to_end(self):
        self.drill(signal.SIGTERM, 1, 4, r"rank 1 \(host .*\) was told to end \(SIGTERM\)")


if __name__ == "__main__":
    unittest.main()
