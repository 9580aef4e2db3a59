# SPDX-License-Identifier: Apache-2.0
"""Failure drills: a job of 2 hosts x 2 ranks on a virtual cluster, one fault, and how it ends."""
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from virtual_cluster import VirtualCluster, wait_until

PROGRAM = str(pathlib.Path(os.environ["TANDEM_BUILD"]) / "tests" / "drill")
RANKS, PER_HOST = 4, 2

# What a rank was doing, as far as its heartbeats have told.
STAGE = r"(step \d+, )?[a-z -]+(, layer \d)?"


@dataclasses.dataclass
class Drill:
    fault: str  # kill, term (SIGTERM), stop (one rank), cut (its host's link), lose (its host); from inside the
    # rank: wedge, throw, segv, device, kernel, config (a ConfigError of this rank alone)
    rank: int
    limit_s: float  # from the fault to the last rank gone, and to the last process gone
    message: str   # regular expression; {host} is the host of the rank
    launcher_limit_s: float = 0  # for the last process, where the launcher has limits of its own


@dataclasses.dataclass
class Outcome:
    ranks_s: float
    seconds: float
    code: int
    output: str
    shared_memory: list
    temporary: list


def launch_line(launcher, cluster):
    if launcher == "srun":
        return ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-N2",
                f"--ntasks-per-node={PER_HOST}"]
    return ["mpirun", "--hostfile", cluster.hostfile(PER_HOST), "-np", str(RANKS), "--map-by",
            f"ppr:{PER_HOST}:node", "--bind-to", "none"]


def inject(drill, cluster, pid):
    host = cluster.hosts[drill.rank // PER_HOST]
    if drill.fault == "kill":
        os.kill(pid, signal.SIGKILL)
    elif drill.fault == "term":
        os.kill(pid, signal.SIGTERM)
    elif drill.fault == "stop":
        os.kill(pid, signal.SIGSTOP)
    elif drill.fault == "cut":
        cluster.cut_link(host)
    elif drill.fault == "lose":
        cluster.lose_host(host)


def has_ranks(cluster):
    for host in cluster.hosts:
        for pid in cluster.pids(host):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "drill":
                    return True
    return False


def run_drill(launcher, drill):
    from_inside = drill.fault in ("wedge", "throw", "segv", "device", "kernel", "config")
    with VirtualCluster(hosts=2, slurm=launcher == "srun") as cluster:
        pids = cluster.root / "pids"
        pids.mkdir()
        command = launch_line(launcher, cluster) + [PROGRAM, f"pids={pids}"]
        if from_inside:
            command += [f"fault={drill.fault}", f"rank={drill.rank}"]
        with open(cluster.root / "output", "w") as output:
            job = cluster.popen(cluster.hosts[0], command, stdout=output, stderr=output)
        wait_until(lambda: len(list(pids.iterdir())) == RANKS, 60, "the ranks did not start")
        if not from_inside:
            time.sleep(1.5)  # six heartbeats, which carry the stage
        start = time.monotonic()
        inject(drill, cluster, int((pids / str(drill.rank)).read_text() or 0))
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not has_ranks(cluster), drill.limit_s + 5, "the ranks did not end")
        ranks_s = time.monotonic() - start
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: job.poll() is not None and not any(map(cluster.pids, cluster.hosts)),
                       max(drill.limit_s, drill.launcher_limit_s) + 5, "the job did not end")
        seconds = time.monotonic() - start
        lost = cluster.hosts[drill.rank // PER_HOST] if drill.fault == "lose" else None
        temporary = [str(path) for host in cluster.hosts if host != lost
                     for path in (cluster.root / f"tmp-{host}").rglob("*") if path.is_file()]
        shared = [path for path in cluster.shared_memory_left() if not lost or lost not in path]
        code = job.poll()
        if code is None:
            job.kill()
        text = (cluster.root / "output").read_text()
        host = cluster.hosts[drill.rank // PER_HOST]
        drill.message = drill.message.replace("{host}", host)
        return Outcome(ranks_s, seconds, code, text, shared, temporary)


class DrillTest(unittest.TestCase):
    """Runs drills side by side: they mostly wait."""

    def check_all(self, launcher, drills):
        with concurrent.futures.ThreadPoolExecutor(len(drills)) as pool:
            outcomes = list(pool.map(lambda drill: run_drill(launcher, drill), drills))
        for drill, outcome in zip(drills, outcomes):
            print(f"{launcher}: {drill.fault} rank {drill.rank}: ranks {outcome.ranks_s:.1f} s, "
                  f"all {outcome.seconds:.1f} s, code {outcome.code}")
            with self.subTest(launcher=launcher, fault=drill.fault, rank=drill.rank):
                self.assertLess(outcome.ranks_s, drill.limit_s, outcome.output)
                self.assertLess(outcome.seconds, max(drill.limit_s, drill.launcher_limit_s),
                                outcome.output)
                self.assertNotIn(outcome.code, (0, None), outcome.output)
                self.assertRegex(outcome.output, re.compile(drill.message))
                self.assertEqual(outcome.shared_memory, [])
                self.assertEqual(outcome.temporary, [])
