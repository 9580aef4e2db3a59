# SPDX-License-Identifier: Apache-2.0
"""The `tandem` program for tests that run it to its end: alone or under mpirun, with the exit code
of every rank."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
TANDEM = os.environ.get("TANDEM", str(SOURCE / "build/tandem"))
MODELS = SOURCE / "tests/fixtures/models"
MPIRUN = SOURCE / "tests/support/mpirun.sh"

# Notes a rank's exit code; a rank that its launcher ended has one too.
NOTE_EXIT = 'trap : TERM; "$@"; code=$?; echo $code > "$EXIT_CODES/${OMPI_COMM_WORLD_RANK:-0}"; exit $code'


class Result:
    """How a run ended: `code`, `codes` by rank, `out` and `err` as bytes, `seconds`."""

    def __init__(self, code, out, err, codes, seconds):
        self.code, self.out, self.err = code, out, err
        self.codes, self.seconds = codes, seconds

    def text(self):
        return self.out.decode()

    def log(self):
        return self.err.decode(errors="replace")


def run(*arguments, ranks=1, stdin=b"", environment=None, seconds=120, program=TANDEM):
    """Runs `tandem ARGUMENTS` on so many ranks; `ranks=1` is without mpirun."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["bash", "-c", NOTE_EXIT, "bash", program, *arguments]
        if ranks > 1:
            command = ["bash", str(MPIRUN), str(ranks), *command]
        start = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
            env=dict(os.environ, EXIT_CODES=folder, **(environment or {})))
        try:
            out, err = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            left = subprocess.run(["ps", "-s", str(process.pid), "-Lo", "pid,stat,wchan:24,args"],
                                  capture_output=True, text=True).stdout
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{arguments} on {ranks} ranks did not end in {seconds} s:\n{left}"
                                 f"{out.decode(errors='replace')}{err.decode(errors='replace')}")
        took = time.monotonic() - start
        codes = {int(file.name): int(file.read_text() or -1)
                 for file in pathlib.Path(folder).iterdir()}
        return Result(process.returncode, out, err, codes, took)
