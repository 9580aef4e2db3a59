# SPDX-License-Identifier: Apache-2.0
"""Many rude clients at once on two ranks with a cache so small that sequences are preempted:
every completed greedy answer equals the single-run answer, all memory comes back, no rank differs.
`REQUESTS` in the environment makes it longer, `RANKS` sets the number of ranks, TANDEM_TEST_DEVICE
(cpu or cuda) where they run, `RESULT` names a file for what was counted (tests/soak.sh)."""

import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import served  # noqa: E402

MODEL = served.MODELS / "llama-9q3kv"  # float32
REQUESTS = int(os.environ.get("REQUESTS", "1000"))
RANKS = int(os.environ.get("RANKS", "2"))
CLIENTS = 24
MIN_GAP = 1e-3  # of the top-2 log-probabilities at each step of a reference


def references(server, count=60):
    """(request, tokens) of greedy answers whose every step is clear, made one at a time."""
    source = random.Random(1)
    prefixes = [[source.randrange(3, 320) for _ in range(150)] for _ in range(4)]
    found = []
    while len(found) < count:
        growing = len(found) % 3 == 0  # admitted with one chunk, needs four: forces preemption
        shared = 0 if growing else source.choice([1, 63, 64, 65, 129, 150])
        prompt = source.choice(prefixes)[:shared]
        prompt = prompt + [source.randrange(3, 320) for _ in range(source.randrange(1, 20))]
        most = source.randrange(150, 230) if growing else source.randrange(1, 80)
        request = {"prompt": prompt, "max_tokens": most, "temperature": 0,
                   "ignore_eos": growing or source.random() < 0.7}
        choice = server.complete(**request, logprobs=2,
                                 return_tokens_as_token_ids=True)["choices"][0]
        steps = [sorted(top.values())[-2:] for top in choice["logprobs"]["top_logprobs"]]
        if all(len(step) == 2 and step[1] - step[0] > MIN_GAP for step in steps):
            found.append((request, choice["text"], choice["finish_reason"]))
    return found


def resident_bytes(launcher):
    """Of `launcher` and all processes below it."""
    parents, resident = {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        resident[int(stat.parent.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")

    def is_below(process):
        while process in parents and process != launcher.pid:
            process = parents[process]
        return process == launcher.pid

    return sum(size for process, size in resident.items() if is_below(process))


class Client(threading.Thread):
    """One client of a random mood per request."""

    def __init__(self, port, cases, seed, requests):
        super().__init__()
        self.port, self.cases, self.requests = port, cases, requests
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.faults = []
        self.done = 0

    def run(self):
        moods = [self.whole] * 8 + [self.streamed] * 6 + [self.stopped] * 3 + [self.leaving] * 4 + [
            self.slow, self.bad_json, self.not_utf8, self.too_long, self.huge, self.half,
            self.samples, self.garbage]
        for _ in range(self.requests):
            mood = self.random.choice(moods)
            try:
                mood(*self.random.choice(self.cases))
            except Exception as error:  # a fault of one request must not hide the others
                self.faults.append(f"{mood.__name__}: {error!r}")
            self.counts[mood.__name__] += 1
            self.done += 1

    @contextlib.contextmanager
    def send(self, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", data)
            yield connection.getresponse()

    def expect(self, what, got, want):
        if got != want:
            self.faults.append(f"{what}: got {got!r}, want {want!r}")

    def refused(self, body, status):
        with self.send(body) as answer:
            self.expect("status", answer.status, status)
            self.expect("code", json.loads(answer.read())["error"]["code"], status)

    def whole(self, request, text, reason):
        with self.send(request) as answer:
            choice = json.loads(answer.read())["choices"][0]
        self.expect("whole", (choice["text"], choice["finish_reason"]), (text, reason))

    def streamed(self, request, text, reason, pause=0.0):
        got, end = "", None
        with self.send(dict(request, stream=True)) as answer:
            for line in answer:
                time.sleep(pause)
                if line.startswith(b"data: {"):
                    choice = json.loads(line[6:])["choices"][0]
                    got += choice["text"]
                    end = choice["finish_reason"] or end
        self.expect("streamed", (got, end), (text, reason))

    def slow(self, request, text, reason):
        self.streamed(request, text, reason, 0.01)

    def stopped(self, request, text, reason):
        at = self.random.randrange(len(text)) if text else 0
        stop = text[at:at + self.random.randrange(1, 4)]
        if not stop or "\ufffd" in stop:
            return
        with self.send(dict(request, stop=[stop, "never there"])) as answer:
            choice = json.loads(answer.read())["choices"][0]
        self.expect("stopped", choice["text"], text[:text.index(stop)])
        self.expect("stop reason", (choice["finish_reason"], choice["stop_reason"]),
                    ("stop", stop))

    def samples(self, request, text, reason):
        with self.send(dict(request, n=3)) as answer:
            choices = json.loads(answer.read())["choices"]
        for choice in choices:
            self.expect("sample", (choice["text"], choice["finish_reason"]), (text, reason))

    def leaving(self, request, text, reason):
        stream = self.random.random() < 0.5
        body = json.dumps(dict(request, stream=stream)).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                           % len(body) + body)
            if stream and self.random.random() < 0.7:
                client.recv(self.random.randrange(1, 2000))
            else:
                time.sleep(self.random.random() * 0.1)

    def half(self, request, text, reason):
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"prom")

    def garbage(self, request, text, reason):
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as client:
            client.sendall(bytes([1 + self.random.randrange(255) for _ in range(200)]) + b"\r\n\r\n")
            self.expect("garbage", client.recv(12)[:12], b"HTTP/1.1 400")

    def bad_json(self, request, text, reason):
        self.refused(json.dumps(request)[:-self.random.randrange(1, 20)].encode(), 400)

    def not_utf8(self, request, text, reason):
        self.refused(b'{"prompt": "a\xff\xfe"}', 400)

    def too_long(self, request, text, reason):
        self.refused(dict(request, prompt=[5] * self.random.randrange(256, 3000)), 400)

    def huge(self, request, text, reason):
        try:
            self.refused(b"x" * 2_000_000, 413)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while it was still being sent


class UnderFire(unittest.TestCase):
    def test_every_completed_answer_is_the_single_run_answer(self):
        with served.Served(MODEL, ranks=RANKS, arguments=[
                "--max-num-seqs", "12", "--max-num-batched-tokens", "64",
                "--kv-cache-memory", "190KiB", "--max-model-len", "256",
                "--max-request-bytes", "1MiB"]) as server:
            cases = references(server)
            begun = server.wait_until_idle()
            clients = [Client(server.port, cases, seed, REQUESTS // CLIENTS + 1)
                       for seed in range(CLIENTS)]
            start = time.time()
            for client in clients:
                client.start()
            while sum(client.done for client in clients) < REQUESTS // 4:
                time.sleep(0.1)
            resident_early = resident_bytes(server.process)
            for client in clients:
                client.join()
            seconds = time.time() - start
            status = server.wait_until_idle()
            counts = sum((client.counts for client in clients), collections.Counter())
            faults = [fault for client in clients for fault in client.faults]
            result = {"requests": sum(counts.values()), "seconds": round(seconds, 1),
                      "by_kind": dict(counts), "faults": len(faults), "ranks": RANKS,
                      "resident_bytes_after_a_quarter": resident_early,
                      "resident_bytes": resident_bytes(server.process),
                      **{name: status[name] for name in (
                          "preemptions", "generated_tokens", "prefix_hits_tokens",
                          "prefix_queries_tokens", "kv_max_chunks", "kv_used_chunks", "steps")}}
            print(json.dumps(result))
            if "RESULT" in os.environ:
                facts = {"bench": "soak",
                         "command": f"TANDEM_TEST_DEVICE={served.DEVICE} RANKS={RANKS} "
                                    f"tests/soak.sh {REQUESTS}",
                         "version": subprocess.run([served.TANDEM, "--version"], text=True,
                                                   capture_output=True, check=True).stdout.strip(),
                         "date": time.strftime("%Y-%m-%d", time.gmtime())}
                pathlib.Path(os.environ["RESULT"]).write_text(
                    json.dumps({**facts, **result}, indent=1) + "\n")
            self.assertEqual(faults, [])
            self.assertLess(result["resident_bytes"], resident_early + 64e6)
            self.assertGreater(status["preemptions"], 9)
            self.assertGreater(status["prefix_hits_tokens"], begun["prefix_hits_tokens"])
            # The same answers once more, now that nothing else runs.
            for request, text, reason in cases[:10]:
                choice = server.complete(**request)["choices"][0]
                self.assertEqual((choice["text"], choice["finish_reason"]), (text, reason))
        self.assertEqual(server.process.returncode, 0)
        self.assertFalse([line for line in server.log if " error " in line], server.log)


if __name__ == "__main__":
    unittest.main()
