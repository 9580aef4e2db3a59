# SPDX-License-Identifier: Apache-2.0
"""A `tandem serve` process for tests: started on a free port, ready when entered, ended on exit."""

import fcntl
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import venv

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TANDEM_BUILD", SOURCE / "build"))
TANDEM = os.environ.get("TANDEM", str(BUILD / "tandem"))
MODELS = SOURCE / "tests/fixtures/models"
DEVICE = os.environ.get("TANDEM_TEST_DEVICE", "cpu")


def endless_model(folder, model=MODELS / "llama-9q3kv"):
    """Arguments of a model in `folder` (a Path) with room for answers that take minutes, so that
    what a test does to a running request does not depend on how fast the test is. The weights are
    dummies; requests should set ignore_eos."""
    config = json.loads((model / "config.json").read_text())
    config.update(max_position_embeddings=100000, hidden_size=288, head_dim=32,
                  intermediate_size=768, num_hidden_layers=8)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(model / name, folder / name)
    return ["--model", str(folder), "--load-format", "dummy", "--kv-cache-memory", "256MiB",
            "--max-model-len", "20000"]


def wait_until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Served:
    """`with Served(model, ranks=2, arguments=[...]) as server:` gives `server.port`."""

    def __init__(self, model, ranks=1, arguments=(), environment=None):
        command = [TANDEM, "serve", "--port", "0", "--threads", "1", "--device", DEVICE]
        command += ["--model", str(model)] if model else []
        command += arguments
        if ranks > 1:
            command = [str(SOURCE / "tests/support/mpirun.sh"), str(ranks), *command]
        self.command = command
        self.environment = dict(os.environ, **(environment or {}))
        self.log = []

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            env=self.environment, start_new_session=True)
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.listening.wait(60):
            os.killpg(self.process.pid, signal.SIGKILL)
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        wait_until(lambda: self.request("GET", "/health")[0] == 200, "the server is ready")
        return self

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on http://[^:]+:(\d+) .* process (\d+)", line)
            if found:
                self.port, self.rank0 = int(found.group(1)), int(found.group(2))
                self.listening.set()

    def signal(self, number):
        """Sends a signal to rank 0, which the launcher has as a child."""
        os.kill(self.rank0, number)

    def wait(self, seconds=60):
        return self.process.wait(seconds)

    def end(self):
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                raise
        self.reader.join(5)
        self.process.stderr.close()

    def __exit__(self, kind, value, trace):
        self.end()
        if kind is not None:
            sys.stderr.write("".join(self.log[-50:]))

    def request(self, method, path, body=None, headers=None, timeout=180):
        """(status, JSON or text, headers)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            text = answer.read().decode()
            kind = answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if "json" in kind and text else text, answer.headers
        finally:
            connection.close()

    def complete(self, **fields):
        status, answer, _ = self.request("POST", "/v1/completions", fields)
        if status != 200:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def status(self):
        return self.request("GET", "/status")[1]

    def wait_until_running(self):
        wait_until(lambda: self.status()["running"] > 0, "a request runs")

    def wait_until_idle(self, seconds=60):
        def used():
            status = self.status()
            return status["running"] + status["waiting"] + status["kv_used_chunks"]
        wait_until(lambda: used() == 0, "the server is idle", seconds)
        return self.status()


def python_with(*packages):
    """The interpreter of a virtual environment in the build folder that has `packages`."""
    folder = BUILD / "test-venv"
    python = folder / "bin/python"
    with open(BUILD / "test-venv.lock", "w") as lock:  # several tests may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        add_packages(folder, python, packages)
    return str(python)


def add_packages(folder, python, packages):
    """What of `packages` is not there yet."""
    if not python.exists():
        venv.create(folder, with_pip=True)
    names = [re.split("[<>=]", package)[0] for package in packages]
    probe = "; ".join(f"import {name}" for name in names)
    if subprocess.run([python, "-c", probe], capture_output=True).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                        *packages], check=True)
