# SPDX-License-Identifier: Apache-2.0
"""A job that is suspended as a whole (scontrol suspend, a closed laptop) goes on when it wakes."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from virtual_cluster import wait_until

DRILL = str(pathlib.Path(os.environ["TANDEM_BUILD"]) / "tests" / "drill")


def main():
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen(["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", DRILL,
                                f"pids={folder}", "steps=100"], env=env, stderr=subprocess.PIPE,
                               text=True)
        wait_until(lambda: len(os.listdir(folder)) == 2, 60, "the ranks did not start")
        time.sleep(0.1)
        pids = [int(path.read_text()) for path in pathlib.Path(folder).iterdir()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(8)  # longer than a silent rank is waited for
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        _, errors = job.communicate(timeout=120)
    if job.returncode != 0:
        print(errors)
    return job.returncode


if __name__ == "__main__":
    sys.exit(main())
